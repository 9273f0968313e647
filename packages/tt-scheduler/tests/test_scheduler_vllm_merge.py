"""Rule L6: what several lanes' outputs become when they are merged."""

from __future__ import annotations

from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.vllm


def test_each_type_has_one_rule(scripted: ModuleType) -> None:
    from tt_scheduler.vllm.merge import _merge

    assert _merge([None, None]) is None
    assert _merge([None, [1], [2]]) == [1, 2]
    assert _merge([[], None]) == []
    assert _merge([{1}, {2}, None]) == {1, 2}
    assert _merge([{"a": 1}, {"b": 2}]) == {"a": 1, "b": 2}
    assert _merge([{"a": 1}, {"a": 2}]) == {"a": 3}
    assert _merge([False, True, True]) is True
    assert _merge([False, False]) is False
    assert _merge([2, 3]) == 5
    assert _merge([0, 0]) == 0


def test_every_field_of_this_release_is_merged(scripted: ModuleType) -> None:
    """Two outputs in which every collection is filled: nothing of either may be missing afterwards."""
    from vllm.v1.core.sched.output import SchedulerOutput

    from tt_scheduler.vllm.merge import merge_schedules

    parts = [SchedulerOutput.make_empty() for _ in range(2)]
    for lane, part in enumerate(parts):
        for item in fields(SchedulerOutput):
            value = getattr(part, item.name)
            if item.name in ("num_scheduled_tokens", "scheduled_spec_decode_tokens", "scheduled_encoder_inputs"):
                setattr(part, item.name, {f"r{lane}": [lane] if "spec" in item.name or "enc" in item.name else 7})
            elif isinstance(value, set):
                setattr(part, item.name, {lane})
            elif isinstance(value, list):
                setattr(part, item.name, [lane])
        part.total_num_scheduled_tokens = 7
        part.preempted_req_ids = {f"p{lane}"}
        part.scheduled_cached_reqs.req_ids.append(f"r{lane}")
    merged = merge_schedules(parts)
    assert merged.lane_of == {"r0": 0, "r1": 1}
    assert merged.total_num_scheduled_tokens == 14
    assert merged.preempted_req_ids == {"p0", "p1"}
    assert merged.scheduled_cached_reqs.req_ids == ["r0", "r1"]
    for item in fields(SchedulerOutput):
        value = getattr(merged, item.name)
        if isinstance(value, set | list | dict) and value and item.name != "num_common_prefix_blocks":
            assert len(value) == 2, item.name


def test_no_block_is_common_to_two_lanes(scripted: ModuleType) -> None:
    from vllm.v1.core.sched.output import SchedulerOutput

    from tt_scheduler.vllm.merge import merge_schedules

    parts = [SchedulerOutput.make_empty() for _ in range(2)]
    for part in parts:
        part.num_common_prefix_blocks = [3]
    assert merge_schedules(parts).num_common_prefix_blocks == [0]


def test_outputs_are_merged_by_client(scripted: ModuleType) -> None:
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats

    from tt_scheduler.vllm.merge import merge_outputs

    def outputs(*names: str, stats: Any = None, finished: set[str] | None = None) -> EngineCoreOutputs:
        items = [EngineCoreOutput(request_id=name, new_token_ids=[1]) for name in names]
        return EngineCoreOutputs(outputs=items, scheduler_stats=stats, finished_requests=finished)

    merged = merge_outputs(
        [
            {0: outputs("a", stats=SchedulerStats(num_running_reqs=2, kv_cache_usage=0.5), finished={"x"})},
            {1: outputs("b"), 0: outputs("c", stats=SchedulerStats(num_running_reqs=3), finished={"y"})},
            {2: outputs(stats=SchedulerStats(num_running_reqs=1, kv_cache_usage=0.1), finished=None)},
        ]
    )
    assert {client: [item.request_id for item in out.outputs] for client, out in merged.items()} == {
        0: ["a", "c"],
        1: ["b"],
        2: [],
    }
    assert merged[0].finished_requests == {"x", "y"}
    stats = [out.scheduler_stats for out in merged.values() if out.scheduler_stats is not None]
    assert [(s.num_running_reqs, round(s.kv_cache_usage, 2)) for s in stats] == [(6, 0.2)]


def test_a_dropped_pass_hands_everything_over(scripted: ModuleType) -> None:
    from vllm.v1.core.sched.output import SchedulerOutput

    from tt_scheduler.vllm.carry import carry_over

    dropped, kept = SchedulerOutput.make_empty(), SchedulerOutput.make_empty()
    dropped.finished_req_ids, kept.finished_req_ids = {"a"}, {"b"}
    dropped.free_encoder_mm_hashes, kept.free_encoder_mm_hashes = ["h1"], ["h2"]
    dropped.preempted_req_ids = {"p"}
    has_copies = hasattr(dropped, "kv_cache_block_copies")  # since 0.26
    if has_copies:
        dropped.kv_cache_block_copies = ["copy"]
    dropped.new_block_ids_to_zero, kept.new_block_ids_to_zero = [4], [5]
    result = carry_over(dropped, kept)
    assert result is kept
    assert result.finished_req_ids == {"a", "b"}
    assert result.free_encoder_mm_hashes == ["h1", "h2"]
    assert result.preempted_req_ids == {"p"}
    assert not has_copies or result.kv_cache_block_copies == ["copy"]
    assert result.new_block_ids_to_zero == [4, 5]
