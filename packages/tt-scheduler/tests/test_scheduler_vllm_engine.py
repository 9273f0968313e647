"""Both schedulers inside vLLM's own EngineCore, and every use that EngineCore makes of a scheduler."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.vllm

SCHEDULERS = {
    1: "vllm_tt_plugin.scheduler.TTScheduler",
    2: "vllm_tt_plugin.lane_scheduler.TTLaneCoordinator",
}


@pytest.fixture
def core(scripted: ModuleType) -> Any:
    """core(lanes, asynchronous) -> EngineCore with a scripted executor."""
    pytest.importorskip("vllm_tt_plugin")
    from vllm.v1.engine.core import EngineCore

    def build(lanes: int, asynchronous: bool) -> Any:
        config = scripted.make_config(
            asynchronous=asynchronous,
            lanes=lanes if lanes > 1 else None,
            max_num_seqs=4,
            max_num_batched_tokens=48,
            max_model_len=256,
            scheduler_cls=SCHEDULERS[lanes],
        )
        config.cache_config.num_gpu_blocks_override = 18
        return EngineCore(config, scripted.ScriptedExecutor, log_stats=True)

    return build


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_real_engine_core_serves_exactly(core: Any, scripted: ModuleType, lanes: int, asynchronous: bool) -> None:
    engine = core(lanes, asynchronous)
    assert type(engine.scheduler).__name__ == SCHEDULERS[lanes].rpartition(".")[2]
    assert (engine.batch_queue is not None) == asynchronous
    prompts = {f"r{i}": [i + 5] * (10 + 17 * i % 90) for i in range(12)}
    outputs: dict[str, list[int]] = {name: [] for name in prompts}
    for name, prompt in prompts.items():
        engine.add_request(scripted.make_request(name, prompt, 60))
    engine.abort_requests(["r3"])
    for _ in range(3000):
        if not engine.scheduler.has_requests() and not engine.batch_queue:
            break
        step_outputs, executed = engine.step_fn()
        engine.post_step(executed)
        for item in (step_outputs or {}).values():
            for output in item.outputs:
                outputs[output.request_id] += output.new_token_ids
    for name, prompt in prompts.items():
        assert outputs[name] == ([] if name == "r3" else scripted.expected_output(prompt, 60)), name
    assert not engine.model_executor.worker.held
    assert any(step.preempted for step in engine.model_executor.worker.steps)
    # Not engine.shutdown(): it empties the cache of an accelerator that a machine without one does not have.
    engine.scheduler.shutdown()


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_use_that_the_engine_makes_of_a_scheduler_is_there(core: Any, lanes: int) -> None:
    """Reads EngineCore's source: a release that asks for something new fails here by its name."""
    from vllm.v1.engine import core as engine_core

    used = set(re.findall(r"\bself\.scheduler\.([a-z_]+)", inspect.getsource(engine_core)))
    assert "schedule" in used
    scheduler = core(lanes, False).scheduler
    assert [name for name in sorted(used) if not hasattr(scheduler, name)] == []


def test_the_lane_coordinator_takes_what_the_interface_gives(scripted: ModuleType) -> None:
    """Each method accepts at least the arguments of SchedulerInterface's."""
    from vllm.v1.core.sched.interface import SchedulerInterface

    from tt_scheduler.vllm.lanes import TTLaneCoordinator

    for name, method in inspect.getmembers(SchedulerInterface, inspect.isfunction):
        own = inspect.signature(getattr(TTLaneCoordinator, name))
        takes_all = any(p.kind is p.VAR_KEYWORD for p in own.parameters.values())
        missing = set(inspect.signature(method).parameters) - set(own.parameters)
        assert takes_all or not missing, f"{name} lacks {missing}"
