"""The simulator against vLLM's scheduler: same workload, same cost model, a clock that both only read."""

from __future__ import annotations

import time
from collections import deque
from types import ModuleType
from typing import Any

import pytest

from tt_scheduler.simulate import PRESETS, Arrival, EngineSize, Results, Run, Scenario, Served, StepEvent, poisson

pytestmark = pytest.mark.vllm

COST = PRESETS["llama-8b-t3k"]
ROWS, KV_TOKENS, BLOCK = 16, 24_576, 16


class TimedEngine:
    """EngineCore's overlapped loop on a clock that only device steps move."""

    def __init__(self, scripted: ModuleType, scenario: Scenario, workload: list[Arrival]) -> None:
        from tt_scheduler.vllm.scheduler import TTScheduler

        options = scenario.options
        config = scripted.make_config(
            asynchronous=True,
            max_num_seqs=ROWS,
            max_num_batched_tokens=scenario.chunk or 4096,
            max_model_len=4096,
            chunked=scenario.chunk is not None,
            tt={name: getattr(options, name) for name in options.__dataclass_fields__},
        )
        # One block of the pool is vLLM's null block.
        self.scheduler = scripted.make_scheduler(TTScheduler, config, KV_TOKENS // BLOCK + 1)
        self.scheduler._pacing.now = lambda: self.now
        self.scripted = scripted
        self.worker = scripted.ScriptedWorker()
        self.now = 0.0
        self.run = Run([Served(arrival) for arrival in workload])
        self.queue: deque[tuple[Any, Any, StepEvent | None]] = deque()

    def serve(self) -> Run:
        waiting = deque(enumerate(self.run.served))
        while waiting or self.scheduler.has_requests() or self.queue:
            while waiting and waiting[0][1].arrival.at <= self.now:
                self._add(*waiting.popleft())
            if self.scheduler.has_requests() and self._schedule() and len(self.queue) < 2:
                continue
            if self.queue:
                self._finish(*self.queue.popleft())
            elif waiting:
                self.now = waiting[0][1].arrival.at
        return self.run

    def _add(self, index: int, served: Served) -> None:
        prompt = [index % 50 + 5] * served.arrival.prompt
        request = self.scripted.make_request(f"r{index}", prompt, served.arrival.output, arrival=time.time())
        self.scheduler.add_request(request)

    def _schedule(self) -> bool:
        output = self.scheduler.schedule(False)
        result = self.worker.execute(output)
        phase = self.worker.steps[-1].phase
        event = None
        if phase != "empty":
            event = self._event(phase, output.num_scheduled_tokens)
            self.run.steps.append(event)
        self.queue.append((output, result, event))
        return event is not None

    def _event(self, phase: str, scheduled: dict[str, int]) -> StepEvent:
        from tt_scheduler import Phase

        context = sum(self.worker.held[name].computed for name in scheduled)
        tokens = sum(scheduled.values())
        ms = COST.step_ms(Phase(phase), tokens, len(scheduled), context)
        last = self.run.steps[-1] if self.run.steps else None
        start = max(self.now, last.start + last.ms / 1e3) if last else self.now
        return StepEvent(start, ms, Phase(phase), tokens, len(scheduled), 0, 0, 0.0)

    def _finish(self, output: Any, result: Any, event: StepEvent | None) -> None:
        if event is not None:
            self.now = event.start + event.ms / 1e3
        for outputs in self.scheduler.update_from_output(output, result).values():
            for item in outputs.outputs:
                served = self.run.served[int(item.request_id[1:])]
                served.tokens += [self.now] * len(item.new_token_ids)


@pytest.mark.parametrize(
    "scenario",
    ["whole", "chunks:chunk=512", "one-to-one:chunk=256,prefill_steps=1", "target:chunk=4096,target_itl_ms=150"],
)
def test_the_simulator_predicts_what_the_scheduler_does(scripted: ModuleType, scenario: str) -> None:
    """Phase counts within 5 %, TTFT p50 and ITL p99 within 10 %."""
    workload = poisson(1.6, 60, [64, 300, 1000, 2500], [20, 60, 150], seed=3)
    parsed = Scenario.parse(scenario)
    real = Results.of(TimedEngine(scripted, parsed, workload).serve())
    size = EngineSize(rows=ROWS, kv_tokens=KV_TOKENS, block=BLOCK, budget=4096)
    simulated = Results.of(parsed.run(workload, COST, size))
    assert simulated.prefill_steps == pytest.approx(real.prefill_steps, rel=0.05)
    assert simulated.decode_steps == pytest.approx(real.decode_steps, rel=0.05)
    assert simulated.ttft_p50 == pytest.approx(real.ttft_p50, rel=0.10)
    assert simulated.itl_p99 == pytest.approx(real.itl_p99, rel=0.10)
    assert simulated.goodput == pytest.approx(real.goodput, abs=0.03)
    assert simulated.e2e_p50 == pytest.approx(real.e2e_p50, rel=0.05)
    if parsed.options.decode_interleave_target_itl_ms is not None:
        assert real.itl_p99 <= 0.150
