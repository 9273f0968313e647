"""The scheduling simulator against the whole stack in real time: vLLM's EngineCore, scheduler, worker, synthetic mesh.

Takes as long as the trace and wants an idle machine, so it runs only when asked for:
TT_ENGINE_REALTIME_SECONDS=180 pytest -s tests/engine/test_engine_realtime.py
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from resident import resident

from tt_scheduler import Phase
from tt_scheduler.simulate import (
    PRESETS,
    Arrival,
    EngineSize,
    Results,
    Run,
    Scenario,
    Served,
    StepEvent,
    poisson,
    read_trace,
)
from tt_scheduler.simulate.table import markdown

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

SECONDS = float(os.environ.get("TT_ENGINE_REALTIME_SECONDS", "0"))
TRACE = Path(__file__).parents[3] / "shared" / "traces" / "azure-2023-conv.csv"
COST = PRESETS["llama-8b-t3k"]
ROWS, BLOCK, TOKENS, LENGTH = 32, 64, 131_072, 10_240
BLOCKS = TOKENS // BLOCK + ROWS
LONE, LONE_PROMPT = 12, 256


def workload() -> list[Arrival]:
    """The recorded trace, thinned to a quarter; a random mix where it is not at hand."""
    if TRACE.exists():
        return read_trace(TRACE, stretch=4.0, seconds=SECONDS, max_prompt=8192)
    return poisson(1.2, SECONDS, list(range(40, 2400, 37)), [20, 60, 150], seed=3)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An EngineCore in this process over the synthetic model, with the cost of Llama-8B on a T3K."""
    pytest.importorskip("vllm")
    from tt_hostmesh.synthetic.checkpoint import write_checkpoint
    from tt_hostmesh.synthetic.cost import DeviceCost

    for name, value in {
        "TT_RUNTIME": "host",
        "TT_HOST_STRICT": "0",
        "MESH_DEVICE": "T3K",
        "TT_HOST_MAX_TOKENS_ALL_USERS": str(TOKENS),
        "HF_HUB_OFFLINE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    cost = DeviceCost(
        decode_ms=COST.first_user_ms,
        decode_ms_per_user=COST.per_user_ms,
        decode_us_per_context_token=COST.per_context_us,
        prefill_floor_ms=COST.prefill_floor_ms,
        prefill_ms_per_token=1e3 / COST.prefill_tokens_per_s,
    )
    checkpoint = write_checkpoint(tmp_path / "model", max_len=LENGTH, cost=cost)
    core = build(Scenario.parse(request.param), checkpoint, tmp_path / "steps")
    yield core
    core.shutdown()
    del core
    gc.collect()


def build(scenario: Scenario, checkpoint: Path, log: Path) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor

    options = scenario.options
    tt = {name: getattr(options, name) for name in options.__dataclass_fields__}
    config = AsyncEngineArgs(
        model=str(checkpoint),
        skip_tokenizer_init=True,
        max_model_len=LENGTH,
        max_num_seqs=ROWS,
        block_size=BLOCK,
        max_num_batched_tokens=scenario.chunk or LENGTH,
        enable_chunked_prefill=scenario.chunk is not None,
        enable_prefix_caching=False,
        async_scheduling=True,
        additional_config={"tt": {**tt, "sample_on_device_mode": "all", "step_log": str(log)}},
    ).create_engine_config()
    return EngineCore(config, Executor.get_class(config), log_stats=False)


def serve(core: Any, arrivals: list[Arrival], log: Path) -> Run:
    """Requests at their times, every token with the time at which the engine gave it out."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    run = Run([Served(arrival) for arrival in arrivals])
    waiting = deque(enumerate(run.served))
    start = time.monotonic()
    while waiting or core.scheduler.has_requests() or core.batch_queue:
        while waiting and waiting[0][1].arrival.at <= time.monotonic() - start:
            index, served = waiting.popleft()
            params = SamplingParams(temperature=0.0, max_tokens=served.arrival.output, ignore_eos=True)
            prompt = [(index * 31 + position) % 997 for position in range(served.arrival.prompt)]
            core.add_request(Request(f"r{index}", prompt, params, None, arrival_time=time.time()))
        if not core.scheduler.has_requests() and not core.batch_queue:
            time.sleep(0.001)
            continue
        outputs, _ = core.step_fn()
        now = time.monotonic() - start
        for item in (outputs or {}).values():
            for output in item.outputs:
                run.served[int(output.request_id[1:])].tokens += [now] * len(output.new_token_ids)
    run.steps += steps_of(log)
    return run


def overhead_ms(core: Any) -> float:
    """The engine's own time beside a prefill step, which no other step hides: what lone requests wait for their first
    token beyond the device's time. They also warm the engine up."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    waits: list[float] = []
    for index in range(LONE):
        params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
        begin, first = time.monotonic(), 0.0
        core.add_request(Request(f"lone{index}", [1] * LONE_PROMPT, params, None, arrival_time=time.time()))
        while core.scheduler.has_requests() or core.batch_queue:
            outputs, _ = core.step_fn()
            if not first and any(item.outputs for item in (outputs or {}).values()):
                first = time.monotonic()
        waits.append((first - begin) * 1e3 - COST.prefill_ms(LONE_PROMPT))
    return max(0.0, statistics.median(waits))


def steps_of(log: Path) -> list[StepEvent]:
    steps = [line for line in map(json.loads, log.read_text().splitlines()) if "phase" in line]
    begin = steps[0]["time"]
    return [
        StepEvent(step["time"] - begin, 0.0, Phase(step["phase"]), step["tokens"], step["requests"], 0, 0, 0.0)
        for step in steps
    ]


SCENARIOS = ["chunks:chunk=512", "target:chunk=4096,target_itl_ms=150"]


@pytest.mark.skipif(not SECONDS, reason="set TT_ENGINE_REALTIME_SECONDS to run in real time")
@pytest.mark.parametrize(("engine", "scenario"), [(one, one) for one in SCENARIOS], indirect=["engine"])
def test_the_simulator_predicts_the_engine_on_the_synthetic_mesh(engine: Any, scenario: str, tmp_path: Path) -> None:
    """Phase counts within 5 %, TTFT p50 and ITL p99 within 10 %."""
    arrivals = workload()
    parsed = Scenario.parse(scenario)
    with resident():
        cost = replace(COST, overhead_ms=overhead_ms(engine))
    log = tmp_path / "steps"
    log.write_text("")  # the file is open for appending: what the lone requests left goes
    with resident():
        real = Results.of(serve(engine, arrivals, log))
    size = EngineSize(rows=ROWS, kv_tokens=(BLOCKS - 1) * BLOCK, block=BLOCK, budget=LENGTH)
    simulated = Results.of(parsed.run(arrivals, cost, size))
    print(f"the engine's own time: {cost.overhead_ms:.2f} ms")
    print(markdown({f"{parsed.name}, engine": real, f"{parsed.name}, simulator": simulated}))
    assert simulated.prefill_steps == pytest.approx(real.prefill_steps, rel=0.05)
    assert simulated.decode_steps == pytest.approx(real.decode_steps, rel=0.05)
    assert simulated.ttft_p50 == pytest.approx(real.ttft_p50, rel=0.10)
    assert simulated.itl_p99 == pytest.approx(real.itl_p99, rel=0.10)
