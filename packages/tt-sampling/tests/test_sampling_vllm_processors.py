"""vLLM's custom logits processors and thinking budgets, on both routes of the host sampler."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.vllm

VOCAB = 128
both = pytest.mark.parametrize("compat", [False, True], ids=["fast", "reference"])


@pytest.fixture
def make(host_sampling: Callable[..., Any]) -> Callable[..., Any]:
    """make(compat, reasoning, **model fields): a HostSampling of 6 rows."""
    return lambda compat, **more: host_sampling(VOCAB, compat, **more)


def logits_of(rows: int, seed: int = 0) -> "torch.Tensor":
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@both
@pytest.mark.parametrize("invariant", [False, True], ids=["before-greedy", "random-only"])
def test_a_per_request_processor_sees_its_row_in_its_steps_only(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool, invariant: bool
) -> None:
    """Not rows that are absent, not chunks, not other requests; and placement hears of it."""
    calls: list[tuple[str, int]] = []
    processor = per_request_processor(calls, invariant)
    sampler = make(compat, logits_processors=[processor])
    plain = sampler.admit(0, vllm_kit.SamplingParams(temperature=1.0), [1], [])
    forced = vllm_kit.SamplingParams(temperature=1.0, extra_args={"force": 17})
    touched = sampler.admit(3, forced, [1], output := [])
    assert (plain.logits_processors, touched.logits_processors) == (False, True)
    assert sampler.sample(logits_of(2), [3, 0]).token_ids[0] == 17
    output.append(17)
    sampler.sample(logits_of(1), [0])
    sampler.sample(logits_of(2), [0, 3], advance=[True, False])
    assert sampler.sample(logits_of(2), [0, 3]).token_ids[1] == 17
    assert calls == [("17", 0), ("17", 1)]


def per_request_processor(calls: list[tuple[str, int]], invariant: bool) -> type:
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

    class Force(AdapterLogitsProcessor):
        def is_argmax_invariant(self) -> bool:
            return invariant

        def new_req_logits_processor(self, params: Any) -> Any:
            token = (params.extra_args or {}).get("force")
            if token is None:
                return None

            def process(output: list[int], logits: "torch.Tensor") -> "torch.Tensor":
                calls.append((str(token), len(output)))
                forced = torch.full_like(logits, float("-inf"))
                forced[token] = 0.0
                return forced

            return process

    return Force


@both
@pytest.mark.parametrize("invariant", [False, True], ids=["before-greedy", "random-only"])
def test_a_processor_for_whole_batches_finds_each_request_at_its_row(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool, invariant: bool
) -> None:
    sampler = make(compat, logits_processors=[whole_batch_processor(invariant)])
    for row in (1, 4):
        assert sampler.admit(row, vllm_kit.SamplingParams(temperature=0.5, top_k=3), [1], []).logits_processors
    sampler.admit(2, vllm_kit.SamplingParams(temperature=0.0), [1], [])
    logits = logits_of(3)
    greedy = 12 if not invariant else int(logits[2].argmax())
    assert sampler.sample(logits, [4, 1, 2]).token_ids == [14, 11, greedy]
    sampler.release(4)
    sampler.admit(4, vllm_kit.SamplingParams(temperature=0.5), [1], [])
    assert sampler.sample(logits_of(1), [4]).token_ids == [14]


def whole_batch_processor(invariant: bool) -> type:
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class RowPlusTen(LogitsProcessor):
        """Forces token 10 + row on every row that is taken."""

        def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
            self.rows: set[int] = set()

        def is_argmax_invariant(self) -> bool:
            return invariant

        def update_state(self, batch_update: Any) -> None:
            if batch_update is not None:
                self.rows.difference_update(batch_update.removed)
                self.rows.update(added[0] for added in batch_update.added)

        def apply(self, logits: "torch.Tensor") -> "torch.Tensor":
            for row in self.rows:
                logits[row] = float("-inf")
                logits[row, 10 + row] = 0.0
            return logits

    return RowPlusTen


@both
def test_a_thinking_budget_ends_thinking(make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool) -> None:
    reasoning = SimpleNamespace(reasoning_start_token_ids=[90], reasoning_end_token_ids=[91])
    sampler = make(compat, reasoning=reasoning)
    output: list[int] = []
    params = vllm_kit.SamplingParams(temperature=0.0, thinking_token_budget=3)
    assert sampler.admit(2, params, [5, 90], output).thinking_budget
    sampler.admit(0, vllm_kit.SamplingParams(temperature=0.0), [5], [])
    logits = torch.zeros(2, VOCAB)
    logits[:, 40] = 5.0
    for _ in range(5):
        tokens = sampler.sample(logits.clone(), [0, 2]).token_ids
        assert tokens[0] == 40
        output.append(tokens[1])
    assert output == [40, 40, 40, 91, 40]
