"""What a batch needs is planned once, and rows that are alike are drawn together."""

import pytest

torch = pytest.importorskip("torch")

from tt_sampling.host import sampler as sampler_module  # noqa: E402
from tt_sampling.host.plan import Request, candidates, limit_of, plan  # noqa: E402
from tt_sampling.host.randomness import Limit  # noqa: E402
from tt_sampling.host.sampler import HostSampler  # noqa: E402
from tt_sampling.parameters import RowSampling  # noqa: E402

VOCAB = 256


def test_a_steady_batch_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a step plans although neither its rows nor a request changed."""
    planned: list[tuple[int, ...]] = []

    def counted(rows: list[int], requests: list[Request], vocab_size: int) -> object:
        planned.append(tuple(rows))
        return plan(rows, requests, vocab_size)

    monkeypatch.setattr(sampler_module, "plan_of", counted)
    sampler = HostSampler(VOCAB)
    sampler.admit(0, RowSampling(temperature=0.7, top_k=5), 1, [], [])
    sampler.admit(1, RowSampling(temperature=0.0, repetition_penalty=1.2), 2, [3], [])
    for _ in range(3):
        sampler.sample(torch.randn(2, VOCAB), [0, 1])
    assert planned == [(0, 1)]
    sampler.sample(torch.randn(2, VOCAB), [1, 0])
    sampler.release(7)
    sampler.sample(torch.randn(2, VOCAB), [1, 0])
    assert planned == [(0, 1), (1, 0)]
    sampler.release(0)
    sampler.sample(torch.randn(1, VOCAB), [1])
    assert planned == [(0, 1), (1, 0), (1,)]


@pytest.mark.parametrize(
    ("row", "limit", "count"),
    [
        (RowSampling(temperature=0.7), Limit.NONE, 64),
        (RowSampling(temperature=0.7, top_k=-1), Limit.NONE, 64),
        (RowSampling(temperature=0.7, top_k=VOCAB), Limit.NONE, 64),
        (RowSampling(temperature=0.7, top_p=0.9), Limit.TOP_P, 64),
        (RowSampling(temperature=0.7, top_p=0.9, min_p=0.1), Limit.MIN_P, 64),
        (RowSampling(temperature=0.7, top_k=50, top_p=0.9, min_p=0.1), Limit.TOP_K, 64),
        (RowSampling(temperature=0.7, top_k=57), Limit.TOP_K, 128),
    ],
)
def test_the_limit_tells_how_a_row_is_drawn(row: RowSampling, limit: Limit, count: int) -> None:
    assert limit_of(row, VOCAB) is limit
    assert candidates(row, limit) == count


def test_rows_of_one_kind_are_one_group() -> None:
    kinds = [RowSampling(top_k=5), RowSampling(), RowSampling(top_k=9, top_p=0.5), RowSampling(temperature=0.0)]
    made = plan(range(8), [Request(row, VOCAB, i, [], []) for i, row in enumerate(kinds * 2)], VOCAB)
    assert made.draws is not None
    assert made.greedy is not None
    assert [group.positions.tolist() for group in made.draws.groups] == [[0, 2, 4, 6], [1, 5]]
    assert made.greedy.tolist() == [3, 7]
    assert made.fine
