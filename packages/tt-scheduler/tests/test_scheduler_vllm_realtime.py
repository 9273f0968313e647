"""The simulator against vLLM's own EngineCore in real time: the device is a thread that sleeps as long as a step takes.

Takes as long as the workload and needs an idle machine, so it runs only when asked for:
TT_SCHEDULER_REALTIME_SECONDS=180 pytest -s -k realtime
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from types import ModuleType
from typing import Any

import pytest

from tt_scheduler import Phase
from tt_scheduler.simulate import PRESETS, Arrival, EngineSize, Results, Run, Scenario, Served, StepEvent, poisson
from tt_scheduler.simulate.table import markdown

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SECONDS = float(os.environ.get("TT_SCHEDULER_REALTIME_SECONDS", "0"))
COST = PRESETS["llama-8b-t3k"]
ROWS, BLOCKS, BLOCK = 16, 1600, 16


class SleepingDevice:
    """A command queue and a thread: each step takes the time of the cost model, one after the other."""

    def __init__(self) -> None:
        self.commands: queue.Queue[tuple[float, Any, Future[Any]] | None] = queue.Queue()
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def submit(self, ms: float, result: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.commands.put((ms, result, future))
        return future

    def _work(self) -> None:
        free = 0.0
        while (command := self.commands.get()) is not None:
            ms, result, future = command
            free = max(free, time.monotonic()) + ms / 1e3
            time.sleep(max(0.0, free - time.monotonic()))
            future.set_result(result)

    def stop(self) -> None:
        self.commands.put(None)
        self.thread.join()


def build(scripted: ModuleType, scenario: Scenario, device: SleepingDevice, steps: list[StepEvent]) -> Any:
    from vllm.v1.engine.core import EngineCore

    class Timed(scripted.ScriptedExecutor):
        num_blocks = BLOCKS

        def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
            answer = super().execute_model(scheduler_output, non_block)
            record = self.worker.steps[-1]
            if record.phase != "empty":
                tokens = sum(record.scheduled.values())
                context = sum(self.worker.held[name].computed for name in record.scheduled)
                phase = Phase(record.phase)
                ms = COST.step_ms(phase, tokens, len(record.scheduled), context)
                steps.append(
                    StepEvent(time.monotonic() - device.began, ms, phase, tokens, len(record.scheduled), 0, 0, 0.0)
                )
            return answer

        def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
            return device.submit(steps[-1].ms, super().sample_tokens(grammar_output))

    options = scenario.options
    config = scripted.make_config(
        asynchronous=True,
        max_num_seqs=ROWS,
        max_num_batched_tokens=scenario.chunk or 4096,
        max_model_len=4096,
        chunked=scenario.chunk is not None,
        tt={name: getattr(options, name) for name in options.__dataclass_fields__},
        scheduler_cls="tt_scheduler.vllm.scheduler.TTScheduler",
    )
    config.cache_config.num_gpu_blocks_override = BLOCKS
    return EngineCore(config, Timed, log_stats=False)


def serve(scripted: ModuleType, scenario: Scenario, workload: list[Arrival]) -> Run:
    run = Run([Served(arrival) for arrival in workload])
    device = SleepingDevice()
    engine = build(scripted, scenario, device, run.steps)
    waiting = deque(enumerate(run.served))
    start = device.began = time.monotonic()
    while waiting or engine.scheduler.has_requests() or engine.batch_queue:
        while waiting and waiting[0][1].arrival.at <= time.monotonic() - start:
            index, served = waiting.popleft()
            prompt = [index % 50 + 5] * served.arrival.prompt
            engine.add_request(scripted.make_request(f"r{index}", prompt, served.arrival.output, arrival=time.time()))
        if not engine.scheduler.has_requests() and not engine.batch_queue:
            time.sleep(0.001)
            continue
        outputs, _ = engine.step_fn()
        for item in (outputs or {}).values():
            for output in item.outputs:
                now = time.monotonic() - start
                run.served[int(output.request_id[1:])].tokens += [now] * len(output.new_token_ids)
    device.stop()
    engine.scheduler.shutdown()
    return run


@pytest.mark.skipif(not SECONDS, reason="set TT_SCHEDULER_REALTIME_SECONDS to run in real time")
@pytest.mark.parametrize("scenario", ["chunks:chunk=512", "target:chunk=4096,target_itl_ms=150"])
def test_the_simulator_predicts_the_engine_in_real_time(scripted: ModuleType, scenario: str) -> None:
    """Phase counts within 5 %, TTFT p50 and ITL p99 within 10 %."""
    workload = poisson(1.2, SECONDS, list(range(40, 2400, 37)), [20, 60, 150], seed=3)
    parsed = Scenario.parse(scenario)
    real = Results.of(serve(scripted, parsed, workload))
    size = EngineSize(rows=ROWS, kv_tokens=(BLOCKS - 1) * BLOCK, block=BLOCK, budget=4096)
    simulated = Results.of(parsed.run(workload, COST, size))
    print(markdown({f"{parsed.name}, engine": real, f"{parsed.name}, simulator": simulated}))
    assert simulated.prefill_steps == pytest.approx(real.prefill_steps, rel=0.05)
    assert simulated.decode_steps == pytest.approx(real.decode_steps, rel=0.05)
    assert simulated.ttft_p50 == pytest.approx(real.ttft_p50, rel=0.10)
    assert simulated.itl_p99 == pytest.approx(real.itl_p99, rel=0.10)
