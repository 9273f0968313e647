"""Logprobs are worked out when they are asked for, and nothing that happens in between changes them."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tt_sampling.late import Late
from tt_sampling.parameters import RowSampling

torch = pytest.importorskip("torch")

from tt_sampling.host.sampler import HostSampler, LogprobsMode  # noqa: E402

VOCAB = 512


def test_late_work_is_done_once_whoever_asks() -> None:
    """Fails without the lock: the threads that meet in it would each do the work."""
    done: list[int] = []
    barrier = Barrier(4)
    late = Late(lambda: done.append(1) or 7)

    def ask() -> int:
        barrier.wait()
        return late()

    with ThreadPoolExecutor(4) as threads:
        assert [future.result() for future in [threads.submit(ask) for _ in range(4)]] == [7] * 4
    assert done == [1]


@pytest.mark.parametrize("mode", LogprobsMode)
@pytest.mark.parametrize("row", [RowSampling(temperature=0.0, logprobs=2), RowSampling(top_k=3, logprobs=2)])
def test_logprobs_are_those_of_their_step_however_late_they_are_asked_for(mode: LogprobsMode, row: RowSampling) -> None:
    """Fails when the rows that ask are not copied, or share their working memory with a later step."""
    steps = [torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]

    def sampler() -> HostSampler:
        fresh = HostSampler(VOCAB, mode)
        fresh.admit(0, row, 11, [1, 2], [])
        fresh.admit(1, RowSampling(temperature=0.0, logprobs=5, presence_penalty=0.5), 12, [3], [4])
        fresh.admit(2, RowSampling(temperature=0.0), 13, [], [])
        return fresh

    now = [sampler().sample(logits.clone(), [0, 1, 2]).logprobs for logits in steps]
    one, buffer = sampler(), torch.empty(3, VOCAB)
    waiting = []
    for logits in steps:
        waiting.append(one.sample(buffer.copy_(logits), [0, 1, 2]))
    buffer.fill_(0.0)
    for expected, sampled in zip(now, waiting, strict=True):
        assert expected is not None
        assert sampled.logprobs is not None
        assert torch.equal(sampled.logprobs.ids, expected.ids)
        assert torch.equal(sampled.logprobs.values, expected.values)
        assert torch.equal(sampled.logprobs.ranks, expected.ranks)
