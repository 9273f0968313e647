"""Argmax and partial selection through block maxima."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tt_sampling.host.blocks import argmax, best, split  # noqa: E402

vocabularies = st.sampled_from([32, 63, 64, 200, 1000, 1024, 4096, 5000])
seeds = st.integers(0, 2**31)


def logits_of(seed: int, rows: int, vocab: int, levels: int) -> "torch.Tensor":
    """Random logits with few distinct values, so that ties are common, as bfloat16 models have them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, levels, (rows, vocab), generator=generator).float() / 8


def in_order(row: "torch.Tensor") -> list[int]:
    """Token ids, best first, equals by id."""
    return sorted(range(row.shape[0]), key=lambda token: (-float(row[token]), token))


@settings(deadline=None, max_examples=60)
@given(seeds, vocabularies, st.sampled_from([3, 50, 10_000]))
def test_argmax_is_the_lowest_id_among_the_best(seed: int, vocab: int, levels: int) -> None:
    logits = logits_of(seed, 5, vocab, levels)
    rows = torch.tensor([4, 0, 2])
    for fine in (False, True):
        assert argmax(split(logits, fine=fine), rows).tolist() == [in_order(logits[row])[0] for row in (4, 0, 2)]


@settings(deadline=None, max_examples=60)
@given(seeds, vocabularies, st.integers(1, 700), st.sampled_from([3, 50, 10_000]), st.booleans())
def test_the_best_tokens_come_in_order_and_nothing_better_is_left_out(
    seed: int, vocab: int, count: int, levels: int, fine: bool
) -> None:
    """Ties with the last value may be cut anywhere; everything better than it must be there."""
    logits = logits_of(seed, 4, vocab, levels)
    values, ids = best(split(logits, fine=fine), torch.tensor([3, 1]), count)
    for line, row in enumerate((3, 1)):
        found = ids[line].tolist()
        last = float(values[line, -1])
        assert values[line].tolist() == logits[row][ids[line].clamp(max=vocab - 1)].tolist() or count > vocab
        assert values[line].tolist() == sorted(values[line].tolist(), reverse=True)
        sure = [token for token in in_order(logits[row]) if float(logits[row][token]) > last]
        assert found[: len(sure)] == sure
        assert found[len(sure) :] == sorted(found[len(sure) :])


def test_splitting_does_not_copy_a_vocabulary_of_whole_blocks() -> None:
    logits = torch.randn(2, 640)
    assert split(logits, fine=True).lines.data_ptr() == logits.data_ptr()
