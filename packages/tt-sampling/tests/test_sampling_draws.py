"""Random draws: the right distribution, and the same token for a request whatever the batch around it."""

import math
import random

import pytest

torch = pytest.importorskip("torch")

from tt_sampling.host import narrow as narrow_module  # noqa: E402
from tt_sampling.host.processed import processed  # noqa: E402
from tt_sampling.host.sampler import HostSampler  # noqa: E402
from tt_sampling.parameters import RowSampling  # noqa: E402

VOCAB = 512


def bf16_logits(seed: int, vocab: int = VOCAB, spread: float = 3.0) -> "torch.Tensor":
    """Logits as bfloat16 models give them: many are equal."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(vocab, generator=generator) * spread).bfloat16().float()


def distribution(logits: "torch.Tensor", row: RowSampling) -> "torch.Tensor":
    """The distribution vLLM draws from, by its own route: mask, sort, cut."""
    one = torch.ones(1, 1)
    top_k = min(row.top_k, logits.shape[0])
    lines = processed(logits.unsqueeze(0), one / row.temperature, one.long() * top_k, one * row.top_p, one * row.min_p)
    return lines.double().softmax(-1).squeeze(0)


def tokens_of(sampler: HostSampler, logits: "torch.Tensor", row: RowSampling, stream: int, count: int) -> list[int]:
    """The first `count` tokens of a request, always from the same logits."""
    output: list[int] = []
    sampler.admit(0, row, stream, [], output)
    for _ in range(count):
        output.append(int(sampler.sample(logits.clone().unsqueeze(0), [0]).tokens[0]))
    return output


def many_tokens(logits: "torch.Tensor", row: RowSampling, requests: int, steps: int) -> "torch.Tensor":
    """How often each token came: float64 [V], over some requests and steps with always the same logits."""
    sampler = HostSampler(logits.shape[0])
    outputs: list[list[int]] = [[] for _ in range(requests)]
    for i, output in enumerate(outputs):
        sampler.admit(i, row, 1000 + i, [], output)
    for _ in range(steps):
        drawn = sampler.sample(logits.repeat(requests, 1), list(range(requests))).tokens.tolist()
        for output, token in zip(outputs, drawn, strict=True):
            output.append(token)
    return torch.bincount(torch.tensor(outputs).flatten(), minlength=logits.shape[0]).double()


def name(row: RowSampling) -> str:
    return f"T{row.temperature}-k{row.top_k}-p{row.top_p}-min{row.min_p}"


def surprise(observed: "torch.Tensor", expected: "torch.Tensor") -> float:
    """How many standard deviations the chi-square statistic lies above its mean; cells of few counts are pooled."""
    order = expected.argsort(descending=True)
    expected, observed = expected[order], observed[order]
    large = expected >= 5
    rest, seen = expected[~large].sum(), observed[~large].sum()
    cells = torch.cat((expected[large], rest.view(1))) if rest >= 5 else expected[large]
    counts = torch.cat((observed[large], seen.view(1))) if rest >= 5 else observed[large]
    freedom = max(1, cells.shape[0] - 1)
    return float((((counts - cells) ** 2 / cells).sum() - freedom) / math.sqrt(2 * freedom))


RESTRICTED = [
    RowSampling(temperature=0.7),
    RowSampling(temperature=1.7),
    RowSampling(temperature=0.7, top_k=50, top_p=0.9),
    RowSampling(temperature=1.0, top_k=5),
    RowSampling(temperature=1.0, top_k=300, top_p=0.8),
    RowSampling(temperature=1.0, top_k=2, top_p=0.5, min_p=0.3),
    RowSampling(temperature=0.7, top_p=0.9),
    RowSampling(temperature=2.0, top_p=0.97),
    RowSampling(temperature=2.0, top_p=0.35),
    RowSampling(temperature=0.3, top_p=0.2),
    RowSampling(temperature=1.0, min_p=0.05),
    RowSampling(temperature=2.0, min_p=0.001, top_p=0.9),
    RowSampling(temperature=1.0, top_k=40, min_p=0.02, top_p=0.95),
]


@pytest.mark.parametrize("row", RESTRICTED, ids=name)
def test_draws_follow_the_distribution(row: RowSampling) -> None:
    """Chi-square over 40 requests of 100 tokens each, one step of 40 rows at a time."""
    logits = bf16_logits(3)
    expected = distribution(logits, row)
    counts = many_tokens(logits, row, 40, 100)
    assert counts[expected == 0].sum() == 0
    assert surprise(counts, expected * counts.sum()) < 4.5


@pytest.mark.parametrize("batch", [1, 7, 32])
@pytest.mark.parametrize("lanes", [1, 4])
def test_draws_follow_the_distribution_in_any_batch(batch: int, lanes: int) -> None:
    """Chi-square of one kind of request among all others, in rows that are shuffled over lanes at every step."""
    row = RESTRICTED[2]
    logits = bf16_logits(8)
    chance = random.Random(batch + lanes)
    sampler = HostSampler(VOCAB)
    rows = chance.sample(range(-(-batch // lanes) * lanes), batch)
    outputs: dict[int, list[int]] = {other: [] for other in rows}
    watched = set(rows[: max(1, batch // 4)])
    for other, kind in zip(rows, mixed_rows(batch), strict=True):
        sampler.admit(other, row if other in watched else kind, 2**40 + other, [3], outputs[other])
    for _ in range(1500 // len(watched)):
        chance.shuffle(rows)
        drawn = sampler.sample(logits.repeat(batch, 1), rows).tokens.tolist()
        for other, token in zip(rows, drawn, strict=True):
            outputs[other].append(token)
    counts = torch.bincount(torch.tensor([outputs[other] for other in watched]).flatten(), minlength=VOCAB).double()
    expected = distribution(logits, row) * counts.sum()
    assert counts[expected == 0].sum() == 0
    assert surprise(counts, expected) < 4.5


@pytest.mark.parametrize("row", [RESTRICTED[0], RESTRICTED[7]], ids=name)
def test_the_draws_of_one_request_follow_the_distribution(row: RowSampling) -> None:
    """The numbers of one stream are independent of one another, rejected attempts included."""
    logits = bf16_logits(5, vocab=192, spread=1.0)
    counts = torch.bincount(torch.tensor(tokens_of(HostSampler(192), logits, row, 9, 3000)), minlength=192).double()
    assert surprise(counts, distribution(logits, row) * 3000) < 4.5


def test_a_wide_nucleus_is_drawn_by_rejection_or_by_sorting_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both routes of a nucleus that the first candidates do not hold."""
    row = RowSampling(temperature=1.5, top_p=0.9)
    logits = bf16_logits(6, vocab=4096)
    expected = distribution(logits, row) * 3000
    for rejections in (0, 1, 8):
        monkeypatch.setattr(narrow_module, "REJECTIONS", rejections)
        counts = many_tokens(logits, row, 30, 100)
        assert counts[expected == 0].sum() == 0
        assert surprise(counts, expected) < 4.5


def mixed_rows(count: int) -> list[RowSampling]:
    kinds = [*RESTRICTED, RowSampling(temperature=0.0), RowSampling(temperature=0.9, repetition_penalty=1.2)]
    return [kinds[i % len(kinds)] for i in range(count)]


@pytest.mark.parametrize("batch", [1, 7, 32])
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("seed", [0, 42, -3, 2**40 + 1])
def test_a_seeded_request_does_not_depend_on_its_batch(batch: int, lanes: int, seed: int) -> None:
    """Rows shuffled over lanes, other requests coming and going, a preemption: always the tokens it gets alone."""
    chance = random.Random(batch * lanes + seed)
    for row in chance.sample(RESTRICTED, 4):
        logits = [bf16_logits(step, spread=1.5) for step in range(6)]
        alone = HostSampler(VOCAB)
        expected: list[int] = []
        alone.admit(0, row, seed, [1, 2], expected)
        for line in logits:
            expected.append(int(alone.sample(line.clone().unsqueeze(0), [0]).tokens[0]))

        sampler = HostSampler(VOCAB)
        capacity = -(-batch // lanes) * lanes
        rows = chance.sample(range(capacity), batch)
        me = rows[-1]
        output: list[int] = []
        for other, sampling in zip(rows[:-1], mixed_rows(batch - 1), strict=True):
            sampler.admit(other, sampling, chance.getrandbits(60), [3], [])
        sampler.admit(me, row, seed, [1, 2], output)
        for step, line in enumerate(logits):
            chance.shuffle(rows)
            batch_logits = torch.randn(batch, VOCAB)
            batch_logits[rows.index(me)] = line
            output.append(int(sampler.sample(batch_logits, rows).tokens[rows.index(me)]))
            if step == 3:
                sampler.release(me)
                output = list(output)
                sampler.admit(me, row, seed, [1, 2], output)
        assert output == expected, row


def test_sampling_twice_without_a_token_taken_advances_nothing() -> None:
    """A prompt chunk that is not the last one is sampled and thrown away."""
    sampler = HostSampler(VOCAB)
    output: list[int] = []
    sampler.admit(0, RowSampling(temperature=1.0, seed=5), 5, [], output)
    logits = bf16_logits(1).unsqueeze(0)
    first = sampler.sample(logits.clone(), [0]).tokens
    assert torch.equal(sampler.sample(logits.clone(), [0]).tokens, first)


def test_top_k_1_is_greedy_even_among_equals() -> None:
    sampler = HostSampler(VOCAB)
    for row in range(20):
        sampler.admit(row, RowSampling(temperature=1.0, top_k=1), row, [], [])
    logits = torch.zeros(20, VOCAB)
    logits[:, [100, 200, 300]] = 4.0
    assert sampler.sample(logits, list(range(20))).tokens.tolist() == [100] * 20


def test_top_k_keeps_every_token_as_good_as_the_last() -> None:
    """vLLM masks what is worse than the k-th logit, so equals of it stay."""
    logits = torch.zeros(VOCAB)
    logits[::2] = 3.0
    row = RowSampling(temperature=1.0, top_k=4)
    counts = torch.bincount(torch.tensor(tokens_of(HostSampler(VOCAB), logits, row, 2, 2000)), minlength=VOCAB)
    assert counts[1::2].sum() == 0
    assert surprise(counts.double(), distribution(logits, row) * 2000) < 4.5


def test_logits_far_below_the_best_do_not_slow_or_spoil_a_draw() -> None:
    """Exponents of -87 and below would be denormal numbers."""
    logits = torch.full((VOCAB,), -100.0)
    logits[7] = 0.0
    logits[9] = float("-inf")
    assert tokens_of(HostSampler(VOCAB), logits, RowSampling(temperature=0.9), 1, 50) == [7] * 50


@pytest.mark.parametrize("row", RESTRICTED, ids=name)
def test_a_vocabulary_of_no_whole_blocks_gives_tokens_of_the_vocabulary(row: RowSampling) -> None:
    logits = bf16_logits(8, vocab=101)
    expected = distribution(logits, row)
    assert all(expected[token] > 0 for token in tokens_of(HostSampler(101), logits, row, 4, 100))
