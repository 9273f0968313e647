"""TTLaneCoordinator on vLLM's real scheduler with a scripted worker: rules L1 to L9."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.vllm


@pytest.fixture
def make(scripted: ModuleType) -> Any:
    """make(lanes=..., blocks=... a lane, asynchronous=..., **config) -> engine around a TTLaneCoordinator."""
    from tt_scheduler.vllm.lanes import TTLaneCoordinator

    def build(lanes: int = 2, blocks: int = 200, asynchronous: bool = False, log_stats: bool = False, **config: Any):
        config.setdefault("max_num_seqs", 2 * lanes)
        settings = scripted.make_config(asynchronous=asynchronous, lanes=lanes, **config)
        scheduler = scripted.make_scheduler(TTLaneCoordinator, settings, blocks, log_stats)
        return scripted.ScriptedEngine(scheduler, asynchronous, settings.cache_config.enable_prefix_caching)

    return build


def lane_names(engine: Any) -> list[set[str]]:
    return [set(lane.requests) for lane in engine.scheduler.lanes]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        {"lanes": 1, "blocks": 14, "max_num_batched_tokens": 48},
        {"lanes": 2, "blocks": 14, "max_num_seqs": 8, "max_num_batched_tokens": 48},
        {"lanes": 3, "blocks": 16, "max_num_seqs": 12, "max_num_batched_tokens": 512, "chunked": False},
        {"lanes": 4, "blocks": 20, "max_num_batched_tokens": 64, "policy": "priority"},
        {"lanes": 8, "blocks": 20, "max_num_batched_tokens": 64, "prefix_caching": True},
    ],
    ids=["one", "two-small-kv", "three-whole-prompts", "four-priority", "eight-prefix-cache"],
)
def test_random_load_is_served_exactly_and_in_pure_steps(make: Any, asynchronous: bool, config: dict[str, Any]) -> None:
    """All lanes share the phase of a step, block ids are checked lane by lane, outputs must be the scripted model's."""
    for seed in range(3):
        engine = make(asynchronous=asynchronous, **config)
        engine.random_load(seed, count=30, cached=bool(config.get("prefix_caching")))
        assert not engine.scheduler._in_flight


def test_L1_requests_spread_and_stay_with_their_lane(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=2, max_num_seqs=4)
    engine.add(*(scripted.make_request(name, [5] * 20, 10) for name in "abcd"))
    assert lane_names(engine) == [{"a", "c"}, {"b", "d"}]
    engine.abort("b", "d")
    engine.add(scripted.make_request("e", [5] * 20, 10))
    assert lane_names(engine) == [{"a", "c"}, {"e"}]
    engine.run()
    assert engine.finished == {"a", "c", "e"}


def test_L4_the_output_names_the_lane_of_every_scheduled_request(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=2)
    engine.add(*(scripted.make_request(name, [5] * 20, 4) for name in "abc"))
    while engine.busy:
        output = engine.scheduler.schedule(False)
        assert set(output.lane_of) == set(output.num_scheduled_tokens)
        assert all((output.lane_of[name] == 1) == (name == "b") for name in output.lane_of)
        engine.scheduler.update_from_output(output, engine.worker.execute(output))


def test_L4_the_output_survives_a_pickle_as_what_it_is(make: Any, scripted: ModuleType) -> None:
    """Executors send it to workers in other processes; an attribute set on the side would be lost."""
    from vllm.v1.core.sched.output import SchedulerOutput

    from tt_scheduler.vllm.lanes import LaneSchedulerOutput

    engine = make(lanes=2)
    engine.add(*(scripted.make_request(name, [5] * 20, 4) for name in "ab"))
    output = pickle.loads(pickle.dumps(engine.scheduler.schedule(False)))
    assert type(output) is LaneSchedulerOutput
    assert isinstance(output, SchedulerOutput)
    assert output.lane_of == {"a": 0, "b": 1}
    assert output.total_num_scheduled_tokens == 40


def test_L5_lanes_number_their_blocks_alike(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=2)
    engine.add(*(scripted.make_request(name, [5] * 20, 4) for name in "ab"))
    new = engine.scheduler.schedule(False).scheduled_new_reqs
    assert new[0].block_ids == new[1].block_ids


def test_L3_only_all_lanes_without_prefill_make_a_decode_step(make: Any, scripted: ModuleType) -> None:
    """One shared phase: a lane that could decode waits while another one prefills, within the interleave's bound."""
    engine = make(lanes=2, max_num_batched_tokens=16)
    engine.add(scripted.make_request("a", [5] * 8, 20), scripted.make_request("b", [6] * 100, 2))
    assert [engine.step()[0] for _ in range(9)] == list("pppdppdpp")


def test_L6_a_zero_token_prefill_becomes_decode_and_loses_nothing(make: Any, scripted: ModuleType) -> None:
    """#38/#42: finished and preempted ids of the dropped pass reach the worker in the same step."""
    engine = make(lanes=2)
    engine.add(*(scripted.make_request(name, [5] * 20, 30) for name in "abcd"))
    while engine.step() != "decode":
        pass
    engine.abort("c")
    engine.add(scripted.make_request("blocked", [7] * 20, 5, structured=True))
    assert engine.step() == "decode"
    assert engine.worker.steps[-1].finished == {"c"}
    assert set(engine.worker.held) == {"a", "b", "d"}


def test_L6_an_idle_lane_is_drained(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=2)
    engine.add(scripted.make_request("a", [5] * 20, 30), scripted.make_request("b", [5] * 20, 30))
    while engine.step() != "decode":
        pass
    engine.abort("b")
    engine.step()
    assert set(engine.worker.held) == {"a"}


def test_L7_one_bitmask_in_the_order_of_the_lanes(make: Any, scripted: ModuleType) -> None:
    """vLLM fills a buffer that it shares between calls: lane 1's rows must not overwrite lane 0's."""
    import zlib

    engine = make(lanes=2, max_num_seqs=8)
    for name in "abcd":
        request = scripted.make_request(name, [5] * 20, 3, structured=name != "d")
        if name != "d":
            request.structured_output_request.grammar = scripted.OpenGrammar()
        engine.add(request)
    # The lanes share one manager, as EngineCore gives it to them.
    manager = engine.scheduler.lanes[0].structured_output_manager
    assert all(lane.structured_output_manager is manager for lane in engine.scheduler.lanes)
    output = engine.scheduler.schedule(False)
    mask = engine.scheduler.get_grammar_bitmask(output)
    assert mask.structured_output_request_ids == ["a", "c", "b"]
    assert [row[0] for row in mask.grammar_bitmask] == [zlib.crc32(name.encode()) % 2**31 for name in "acb"]


def test_L7_no_mask_without_a_constrained_request(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=2)
    engine.add(scripted.make_request("a", [5] * 20, 3))
    output = engine.scheduler.schedule(False)
    engine.scheduler.lanes = None  # Nothing is asked of any lane.
    assert engine.scheduler.get_grammar_bitmask(output) is None


@pytest.mark.parametrize("asynchronous", [False, True])
def test_L8_statistics_of_all_lanes_are_added_up(make: Any, scripted: ModuleType, asynchronous: bool) -> None:
    engine = make(
        lanes=2,
        blocks=18,
        max_num_seqs=8,
        asynchronous=asynchronous,
        log_stats=True,
        prefix_caching=True,
        max_num_batched_tokens=512,
    )
    shared = [9] * 48
    requests = [scripted.make_request(f"r{i}", [*shared, i], 70, cached=True) for i in range(8)]
    engine.add(*requests[:2])
    while engine.step() != "decode":
        pass
    engine.add(*requests[2:])
    engine.run()
    stats = engine.stats
    most = max(stats, key=lambda s: s.num_running_reqs)
    assert most.num_running_reqs > 4
    assert max(s.num_waiting_reqs + s.num_skipped_waiting_reqs for s in stats) > 0
    assert max(s.kv_cache_usage for s in stats) > 0.5
    assert all(s.kv_cache_usage <= 1 for s in stats)
    prefix = [s.prefix_cache_stats for s in stats]
    # 0.26 counts every look-up, later releases every admission.
    assert sum(p.requests for p in prefix) >= 8
    assert sum(p.hits for p in prefix) > 0
    preempted = sum(len(step.preempted) for step in engine.worker.steps)
    assert preempted
    assert sum(p.preempted_requests for p in prefix) >= preempted
    assert stats[-1].num_running_reqs == stats[-1].num_waiting_reqs == 0


def test_L8_statistics_go_out_once_a_step(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=4, log_stats=True)
    engine.add(*(scripted.make_request(f"r{i}", [5] * 20, 5) for i in range(6)))
    output = engine.scheduler.schedule(False)
    outputs = engine.scheduler.update_from_output(output, engine.worker.execute(output))
    assert sum(item.scheduler_stats is not None for item in outputs.values()) == 1
    assert len(outputs[0].outputs) == 6


def test_L9_pause_and_resume_reach_every_lane(make: Any, scripted: ModuleType) -> None:
    from vllm.v1.core.sched.interface import PauseState

    engine = make(lanes=3)
    engine.add(*(scripted.make_request(f"r{i}", [5] * 20, 5) for i in range(6)))
    engine.step()
    engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert [lane.pause_state for lane in engine.scheduler.lanes] == [PauseState.PAUSED_ALL] * 3
    assert engine.scheduler.pause_state is PauseState.PAUSED_ALL
    assert engine.scheduler.get_num_unfinished_requests() == 0
    assert engine.scheduler.schedule(False).total_num_scheduled_tokens == 0
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    engine.run()
    assert len(engine.finished) == 6


def test_L9_everybody_can_be_finished_at_once(make: Any, scripted: ModuleType) -> None:
    from vllm.v1.request import RequestStatus

    engine = make(lanes=2)
    engine.add(*(scripted.make_request(name, [5] * 20, 5) for name in "abc"))
    engine.step()
    gone = engine.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    assert set(scripted.ids_of(gone)) == set("abc")
    assert not engine.scheduler.has_unfinished_requests()
    assert engine.scheduler.has_finished_requests()
    engine.step()
    assert not engine.worker.held
    assert not engine.scheduler.has_requests()


def test_L9_state_questions_cover_every_lane(make: Any, scripted: ModuleType) -> None:
    engine = make(lanes=2)
    scheduler = engine.scheduler
    assert not scheduler.has_requests()
    engine.add(*(scripted.make_request(name, [5] * 20, 5) for name in "abc"))
    assert scheduler.get_request_counts() == (0, 3)
    assert scheduler.has_request("b")
    assert not scheduler.has_request("z")
    engine.step()
    assert scheduler.get_request_counts() == (3, 0)
    assert scheduler.get_num_unfinished_requests() == 3
    assert 0 < scheduler.get_kv_cache_usage() < 1
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    assert scheduler.get_request_counts() == (0, 3)
    scheduler.reset_encoder_cache()
    assert scheduler.make_stats() is None
    engine.run()
    scheduler.shutdown()


def test_an_output_that_is_not_in_flight_is_an_error(make: Any, scripted: ModuleType) -> None:
    from vllm.v1.core.sched.output import SchedulerOutput

    scheduler = make().scheduler
    output = SchedulerOutput.make_empty()
    with pytest.raises(RuntimeError, match="in flight"):
        scheduler.update_from_output(output, None)


@pytest.mark.parametrize("lanes", [None, 0, True, "4", 2.0])
def test_a_lane_count_that_is_missing_or_wrong_is_refused(scripted: ModuleType, lanes: Any) -> None:
    from tt_scheduler.vllm.lanes import lane_count

    config = scripted.make_config()
    config.additional_config["_tt_resolved_lane_count"] = lanes
    with pytest.raises(ValueError, match=r"_tt_resolved_lane_count.*whole number"):
        lane_count(config)


def test_rows_that_do_not_divide_into_lanes_are_refused(scripted: ModuleType) -> None:
    from tt_scheduler.vllm.lanes import lane_count

    with pytest.raises(ValueError, match="max_num_seqs=5 cannot be divided into 2 lanes"):
        lane_count(scripted.make_config(lanes=2, max_num_seqs=5))


def test_a_lane_sees_its_share_and_the_launch_keeps_its_own(scripted: ModuleType) -> None:
    from tt_scheduler.vllm.lanes import lane_config

    config = scripted.make_config(lanes=4, max_num_seqs=32)
    own = lane_config(config, 4)
    assert own.scheduler_config.max_num_seqs == 8
    assert config.scheduler_config.max_num_seqs == 32
    assert own.cache_config is config.cache_config


def test_kv_events_are_refused(scripted: ModuleType) -> None:
    from vllm.config import KVEventsConfig

    from tt_scheduler.vllm.lanes import lane_config

    config = scripted.make_config(lanes=2)
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    with pytest.raises(ValueError, match="kv_events_config"):
        lane_config(config, 2)
