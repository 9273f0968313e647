"""TTScheduler on vLLM's real scheduler with a scripted worker: rules S1 to S5 and V1 to V9."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.vllm


@pytest.fixture
def make(scripted: ModuleType) -> Any:
    """make(blocks=..., asynchronous=..., **config) -> engine around a TTScheduler."""
    from tt_scheduler.vllm.scheduler import TTScheduler

    def build(blocks: int = 200, asynchronous: bool = False, **config: Any) -> Any:
        settings = scripted.make_config(asynchronous=asynchronous, **config)
        scheduler = scripted.make_scheduler(TTScheduler, settings, blocks)
        return scripted.ScriptedEngine(scheduler, asynchronous, settings.cache_config.enable_prefix_caching)

    return build


def until(engine: Any, phase: str, limit: int = 50) -> None:
    for _ in range(limit):
        if engine.step() == phase:
            return
    raise AssertionError(f"no {phase} step in {limit}: {engine.phases}")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize(
    "config",
    [
        {"blocks": 200, "max_num_seqs": 8, "max_num_batched_tokens": 512, "chunked": False},
        {"blocks": 16, "max_num_seqs": 4, "max_num_batched_tokens": 512, "chunked": False},
        {"blocks": 14, "max_num_seqs": 8, "max_num_batched_tokens": 48},
        {"blocks": 24, "max_num_seqs": 8, "max_num_batched_tokens": 100, "long_prefill_token_threshold": 30},
        {"blocks": 20, "max_num_seqs": 4, "max_num_batched_tokens": 64, "prefix_caching": True},
        {
            "blocks": 24,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "tt": {"decode_interleave_prefill_steps": 1, "decode_interleave_decode_steps": 2},
        },
    ],
    ids=["roomy", "small-kv", "chunks-small-kv", "long-prompt-threshold", "prefix-cache", "interleave-1-2"],
)
def test_random_load_is_served_exactly_and_in_pure_steps(
    make: Any, asynchronous: bool, policy: str, config: dict[str, Any]
) -> None:
    """The worker refuses mixed steps, wrong positions, shared blocks; the outputs must be the scripted model's."""
    preempted = 0
    for seed in range(3):
        engine = make(asynchronous=asynchronous, policy=policy, **config)
        engine.random_load(seed, count=20, cached=bool(config.get("prefix_caching")))
        preempted += sum(len(step.preempted) for step in engine.worker.steps)
    if config["blocks"] < 20:
        assert preempted


def test_S1_prefill_goes_first_and_I1_the_insertion_comes_on_time(make: Any, scripted: ModuleType) -> None:
    engine = make(max_num_batched_tokens=16)
    engine.add(scripted.make_request("a", [5] * 8, 30))
    engine.step()
    engine.add(scripted.make_request("b", [5] * 96, 2))
    assert [engine.step()[0] for _ in range(9)] == list("ppdppdppd")


def test_S3_a_queue_that_does_not_fit_does_not_stop_decoding(make: Any, scripted: ModuleType) -> None:
    """The livelock of a forced prefill step that schedules nothing (fork#450)."""
    engine = make(blocks=12, max_num_seqs=4)
    engine.add(scripted.make_request("a", [5] * 100, 40), scripted.make_request("b", [6] * 100, 5))
    engine.run()
    assert {name: len(tokens) for name, tokens in engine.outputs.items()} == {"a": 40, "b": 5}


def test_S3_a_partly_prefilled_request_is_prefill_work_only(make: Any, scripted: ModuleType) -> None:
    """The deadlock of a partial prefill among running decodes (tt-xla#5664)."""
    engine = make(max_num_batched_tokens=16, tt={"decode_interleave_prefill_steps": 1})
    engine.add(scripted.make_request("a", [5] * 8, 20))
    engine.step()
    engine.add(scripted.make_request("b", [5] * 100, 3))
    engine.run()
    decode = [step.scheduled for step in engine.worker.steps if step.phase == "decode"]
    finished = next(i for i, step in enumerate(engine.worker.steps) if step.phase == "prefill" and "b" in step.admitted)
    assert finished
    assert all(count == 1 for step in decode for count in step.values())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_S5_a_request_with_a_token_in_flight_is_not_resumed_in_the_step_that_preempted_it(
    make: Any, scripted: ModuleType, asynchronous: bool
) -> None:
    """`long` prefills in chunks and was admitted before `short`. When the cache is full, `short` preempts itself in a
    decode pass that schedules nothing, right after another decode step, and the retry continues `long`. Without S5
    the retry also resumes `short`, which on 0.26 loses the token that is in flight."""
    engine = make(
        blocks=7,
        asynchronous=asynchronous,
        max_num_batched_tokens=24,
        long_prefill_token_threshold=8,
        scheduler_reserve_full_isl=False,
        tt={"decode_interleave_prefill_steps": 1, "decode_interleave_decode_steps": 2},
    )
    prompts = {"long": [5] * 90, "short": [6]}
    engine.add(scripted.make_request("long", prompts["long"], 4))
    engine.add(scripted.make_request("short", prompts["short"], 30))
    engine.run()
    retried = [step for step in engine.worker.steps if "short" in step.preempted and step.phase == "prefill"]
    assert retried
    assert all("short" not in step.scheduled for step in retried)
    assert engine.outputs["short"] == scripted.expected_output(prompts["short"], 30)
    assert engine.outputs["long"] == scripted.expected_output(prompts["long"], 4)


def test_V1_what_a_dropped_pass_drained_travels_with_the_one_that_is_kept(make: Any, scripted: ModuleType) -> None:
    """`blocked` waits for its grammar, so each step's first pass schedules nothing. The abort must reach the worker."""
    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 30), scripted.make_request("b", [6] * 20, 30))
    until(engine, "decode")
    engine.add(scripted.make_request("blocked", [7] * 20, 5, structured=True))
    engine.abort("a")
    assert engine.step() == "decode"
    assert engine.worker.steps[-1].finished == {"a"}
    assert set(engine.worker.held) == {"b"}


def test_V1_a_dropped_pass_is_not_a_step_of_its_own(make: Any, scripted: ModuleType) -> None:
    """Otherwise every running request is sent with all its tokens again, every step."""
    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 30))
    until(engine, "decode")
    engine.add(scripted.make_request("blocked", [7] * 20, 5, structured=True))
    engine.step()
    output = engine.scheduler.schedule(False)
    assert output.num_scheduled_tokens == {"a": 1}
    assert output.scheduled_cached_reqs.all_token_ids == {}


def test_V2_a_grammar_wait_blocks_nobody_and_never_enters_a_decode_step(make: Any, scripted: ModuleType) -> None:
    """#8: counted as pending prefill, promoted only by a prefill pass."""
    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 12))
    until(engine, "decode")
    blocked = scripted.make_request("blocked", [7] * 20, 5, structured=True)
    engine.add(blocked)
    assert [engine.step() for _ in range(4)] == ["decode"] * 4
    blocked.structured_output_request.grammar = scripted.OpenGrammar()
    assert engine.step() == "prefill"
    assert "blocked" in engine.worker.steps[-1].admitted
    engine.run()
    assert engine.finished == {"a", "blocked"}


def test_V3_a_bitmask_is_built_for_constrained_rows_that_sample(make: Any, scripted: ModuleType) -> None:
    """#55/#65: no mask for a chunk, none for a step without constrained requests."""
    engine = make(max_num_batched_tokens=16)
    request = scripted.make_request("s", [5] * 40, 4, structured=True)
    request.structured_output_request.grammar = scripted.OpenGrammar()
    engine.add(request, scripted.make_request("plain", [6] * 8, 4))
    asked = []
    while engine.busy:
        output = engine.scheduler.schedule(False)
        mask = engine.scheduler.get_grammar_bitmask(output)
        asked.append((dict(output.num_scheduled_tokens), mask and mask.structured_output_request_ids))
        engine.scheduler.update_from_output(output, engine.worker.execute(output))
    assert asked[0] == ({"s": 16}, None)
    assert [ids for scheduled, ids in asked if ids] == [["s"]] * 4


def test_V4_the_long_prompt_threshold_counts_the_decodes(make: Any, scripted: ModuleType) -> None:
    """Releases from 0.28 on lift the threshold when no other request exists; deferred decodes are others."""
    engine = make(max_num_batched_tokens=128, long_prefill_token_threshold=32)
    engine.add(scripted.make_request("a", [5] * 8, 30))
    engine.step()
    engine.add(scripted.make_request("b", [6] * 100, 4))
    assert engine.step() == "prefill"
    assert engine.worker.steps[-1].scheduled == {"b": 32}


def test_V5_the_newest_request_is_preempted_whatever_its_phase(make: Any, scripted: ModuleType) -> None:
    """A chunk is no safer than a decode: first come, first served holds across phases."""
    engine = make(
        blocks=10,
        max_num_batched_tokens=16,
        scheduler_reserve_full_isl=False,
        tt={"decode_interleave_prefill_steps": 1},
    )
    engine.add(scripted.make_request("old", [5] * 31, 80))
    until(engine, "decode")
    engine.add(scripted.make_request("new", [6] * 120, 4))
    engine.run()
    preempted = [name for step in engine.worker.steps for name in step.preempted]
    assert preempted
    assert set(preempted) == {"new"}


def test_V5_the_lowest_priority_is_preempted_whatever_its_phase(make: Any, scripted: ModuleType) -> None:
    engine = make(
        blocks=9,
        policy="priority",
        max_num_batched_tokens=24,
        long_prefill_token_threshold=8,
        scheduler_reserve_full_isl=False,
        tt={"decode_interleave_prefill_steps": 1},
    )
    engine.add(scripted.make_request("low", [6] * 120, 4, priority=9, arrival=0.0))
    engine.step()
    engine.add(scripted.make_request("high", [5] * 10, 80, priority=0, arrival=1.0))
    engine.run()
    assert {name for step in engine.worker.steps for name in step.preempted} == {"low"}


def test_V6_pausing_new_requests_lets_the_running_ones_go_on(make: Any, scripted: ModuleType) -> None:
    from vllm.v1.core.sched.interface import PauseState

    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 6))
    until(engine, "decode")
    engine.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    engine.add(scripted.make_request("b", [6] * 20, 6))
    engine.run()
    assert engine.finished == {"a"}
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    engine.run()
    assert engine.finished == {"a", "b"}


def test_V6_pausing_all_schedules_nothing_and_keeps_everything(make: Any, scripted: ModuleType) -> None:
    from vllm.v1.core.sched.interface import PauseState

    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 6))
    until(engine, "decode")
    engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert engine.scheduler.schedule(False).total_num_scheduled_tokens == 0
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    engine.run()
    assert len(engine.outputs["a"]) == 6


def test_V7_limits_are_restored_after_every_pass(make: Any, scripted: ModuleType) -> None:
    engine = make(blocks=12, max_num_seqs=3)
    scheduler = engine.scheduler
    names = ("max_num_running_reqs", "max_num_active_reqs", "max_num_scheduled_tokens")
    before = {name: getattr(scheduler, name, None) for name in names}
    engine.add(*(scripted.make_request(f"r{i}", [i + 5] * 50, 20) for i in range(5)))
    while engine.busy:
        engine.step()
        assert {name: getattr(scheduler, name, None) for name in names} == before


def test_V7_limits_are_restored_when_a_pass_raises(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tt_scheduler import Pass, Phase

    scheduler = make().scheduler
    limit = scheduler.max_num_scheduled_tokens
    monkeypatch.setattr(scheduler, "kv_cache_manager", None)
    with pytest.raises(AttributeError):
        scheduler.run_pass(Pass(Phase.PREFILL, 5, 0))
    assert scheduler.max_num_scheduled_tokens == limit


def test_V7_a_decode_pass_says_nothing_about_prefill_capacity(make: Any, scripted: ModuleType) -> None:
    """vLLM would otherwise take every queue for one that does not fit and stop throttling prefills."""
    from tt_scheduler import Pass, Phase

    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 6))
    until(engine, "decode")
    engine.add(scripted.make_request("b", [6] * 20, 6))
    engine.scheduler.prefill_capacity_bound = False
    engine.scheduler.run_pass(Pass(Phase.DECODE))
    assert engine.scheduler.prefill_capacity_bound is False


@pytest.mark.parametrize("asynchronous", [False, True])
def test_V8_an_abort_between_steps_reaches_the_worker_and_returns_the_request(
    make: Any, scripted: ModuleType, asynchronous: bool
) -> None:
    """#100: a release whose finish_requests returned nothing left aborted clients hanging."""
    engine = make(asynchronous=asynchronous)
    engine.add(*(scripted.make_request(name, [5] * 20, 30) for name in "ab"))
    until(engine, "decode")
    assert engine.abort("a", "unknown") == ["a"]
    engine.run()
    assert engine.finished == {"b"}
    assert not engine.worker.held


def test_V8_a_forced_cache_reset_keeps_every_output_right(make: Any, scripted: ModuleType) -> None:
    """`reset_prefix_cache(reset_running_requests=True)` preempts everybody; their frames in flight are dropped."""
    engine = make(asynchronous=True)
    engine.add(*(scripted.make_request(name, [ord(name)] * 20, 12) for name in "abc"))
    until(engine, "decode")
    while engine._queue:
        output, result = engine._queue.popleft()
        for outputs in engine.scheduler.update_from_output(output, result).values():
            engine._collect(outputs)
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    engine.run()
    for name in "abc":
        assert engine.outputs[name] == scripted.expected_output([ord(name)] * 20, 12)


def test_V9_synchronous_scheduling_leaves_no_placeholder(make: Any, scripted: ModuleType) -> None:
    """AsyncScheduler is the base in both modes: between two synchronous steps it differs in nothing from Scheduler."""
    engine = make(blocks=14, max_num_batched_tokens=48)
    engine.add(*(scripted.make_request(f"r{i}", [i + 5] * 50, 20) for i in range(5)))
    while engine.busy:
        engine.step()
        for request in engine.scheduler.requests.values():
            assert request.num_output_placeholders == 0
            assert getattr(request, "num_in_flight_tokens", 0) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_V9_a_request_at_the_end_of_its_context_stops(make: Any, scripted: ModuleType, asynchronous: bool) -> None:
    engine = make(asynchronous=asynchronous, max_model_len=64, max_num_batched_tokens=64, chunked=False)
    engine.add(scripted.make_request("a", [5] * 50, 500))
    engine.run()
    assert len(engine.outputs["a"]) == 14


def test_a_throttled_prefill_becomes_a_decode_step(make: Any, scripted: ModuleType) -> None:
    """vLLM's own balancing of prefills between data-parallel ranks goes on working."""
    engine = make()
    engine.add(scripted.make_request("a", [5] * 20, 6))
    until(engine, "decode")
    engine.add(scripted.make_request("b", [6] * 20, 6))
    output = engine.scheduler.schedule(True)
    assert output.num_scheduled_tokens == {"a": 1}
    engine.scheduler.update_from_output(output, engine.worker.execute(output))
    assert engine.step() == "prefill"


def test_whole_prompts_need_a_budget_that_holds_them(scripted: ModuleType) -> None:
    """#5: a prompt longer than the budget with chunking off could never be scheduled. vLLM refuses that launch."""
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        scripted.make_config(chunked=False, max_num_batched_tokens=64, max_model_len=512)


def test_a_kv_connector_is_refused(scripted: ModuleType) -> None:
    from tt_scheduler.vllm.scheduler import TTScheduler

    scheduler = TTScheduler.__new__(TTScheduler)
    scheduler.connector = object()
    with pytest.raises(ValueError, match="kv_transfer_config"):
        scheduler._check_supported()
