"""Penalties through counts: the same numbers as counting the whole history anew."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tt_sampling.host import history as history_module  # noqa: E402
from tt_sampling.host.history import History  # noqa: E402
from tt_sampling.host.penalties import Penalties  # noqa: E402
from tt_sampling.parameters import RowSampling  # noqa: E402

VOCAB = 64

tokens = st.lists(st.integers(0, VOCAB - 1), max_size=40)
penalised = st.builds(
    RowSampling,
    presence_penalty=st.sampled_from([0.0, 0.7, -1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
)


def counted_anew(logits: "torch.Tensor", row: RowSampling, prompt: list[int], output: list[int]) -> "torch.Tensor":
    """vLLM's `apply_penalties` on one row, spelled out."""
    counts = torch.zeros(VOCAB)
    for token in output:
        counts[token] += 1
    seen = counts > 0
    for token in prompt:
        if 0 <= token < VOCAB:
            seen[token] = True
    penalties = torch.where(seen, torch.tensor(row.repetition_penalty), torch.tensor(1.0))
    logits = logits * torch.where(logits > 0, 1.0 / penalties, penalties)
    logits = logits - torch.tensor(row.frequency_penalty) * counts
    return logits - torch.tensor(row.presence_penalty) * (counts > 0)


def check(penalties: Penalties, parts: list[tuple[int, RowSampling, list[int], list[int]]], seed: int) -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(seed))
    logits[0, 3] = float("-inf")
    expected = logits.clone()
    for line, row, prompt, output in parts:
        expected[line] = counted_anew(logits[line], row, prompt, output)
    penalties.apply(logits)
    assert torch.equal(logits, expected)


@settings(deadline=None, max_examples=80)
@given(st.data(), penalised, penalised, tokens, tokens, tokens, st.integers(0, 2**31))
def test_counting_as_tokens_come_is_counting_anew(
    data: st.DataObject,
    first: RowSampling,
    second: RowSampling,
    prompt: list[int],
    other_prompt: list[int],
    resumed: list[int],
    seed: int,
) -> None:
    """Rows with and without history, steps of none, one or many tokens, and places running out."""
    output: list[int] = list(resumed)
    other: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_module, "HEADROOM", 3)
        histories = [History(first, VOCAB, prompt, output), History(second, VOCAB, other_prompt, other)]
        parts = [(2, first, prompt, output), (0, second, other_prompt, other)]
        penalties = Penalties([2, 0], histories, VOCAB)
        for step in range(5):
            check(penalties, parts, seed + step)
            output += data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=3))
            other += data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=70))
        # A new batch layout takes the histories over, whatever was emitted in between.
        penalties = Penalties([1], histories[:1], VOCAB)
        check(penalties, [(1, first, prompt, output)], seed)


def test_an_output_that_got_shorter_is_counted_anew() -> None:
    """A resumed request may come back with fewer tokens."""
    row = RowSampling(frequency_penalty=0.5, repetition_penalty=1.2)
    output = [1, 2, 3, 4, 4]
    history = History(row, VOCAB, [9], output)
    penalties = Penalties([0], [history], VOCAB)
    check(penalties, [(0, row, [9], output)], 1)
    del output[2:]
    check(penalties, [(0, row, [9], output)], 2)


def test_every_token_seen_leaves_no_free_place() -> None:
    row = RowSampling(repetition_penalty=1.2, presence_penalty=0.5)
    output = [1]
    history = History(row, VOCAB, list(range(VOCAB)), output)
    penalties = Penalties([0], [history], VOCAB)
    for step in range(3):
        check(penalties, [(0, row, list(range(VOCAB)), output)], step)
        output.append(step)


def test_the_token_that_fills_free_places_is_exchanged_when_it_is_emitted() -> None:
    """Free places hold an unseen token; once it is seen they must hold another one, or it is written twice."""
    row = RowSampling(frequency_penalty=0.5)
    output: list[int] = []
    history = History(row, VOCAB, [], output)
    penalties = Penalties([0], [history], VOCAB)
    check(penalties, [(0, row, [], output)], 0)
    output.append(int(history.ids[-1]))
    check(penalties, [(0, row, [], output)], 1)


def test_a_placeholder_in_the_output_is_an_error() -> None:
    with pytest.raises(ValueError, match="emitted token -1 is outside the vocabulary of 64 tokens"):
        History(RowSampling(presence_penalty=1.0), VOCAB, [], [3, -1])


def test_image_places_of_the_prompt_are_no_tokens() -> None:
    row = RowSampling(repetition_penalty=1.2)
    history = History(row, VOCAB, [5, VOCAB + 3, -1], [])
    check(Penalties([0], [history], VOCAB), [(0, row, [5], [])], 0)
