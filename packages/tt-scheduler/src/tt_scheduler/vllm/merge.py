"""Several lanes' outputs as one: one rule a type, and the few fields that need their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.output import SchedulerOutput

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats


@dataclass
class LaneSchedulerOutput(SchedulerOutput):
    """A step of several lanes. Block ids are local to a request's lane.

    lane_of:  request id -> lane, for every scheduled request
    """

    lane_of: dict[str, int] = field(default_factory=dict)


def _mean(values: Sequence[Any]) -> Any:
    return sum(values) / len(values)


# Lanes share neither blocks nor a common prefix, and their KV pools are of one size.
_OUTPUT_RULES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "num_common_prefix_blocks": lambda values: [0] * len(values[0]),
    "num_spec_tokens_to_schedule": max,
    "skip_drafts": all,
}
_STATS_RULES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "kv_cache_usage": _mean,
    "step_counter": max,
    "current_wave": max,
}


def merge_schedules(parts: Sequence[SchedulerOutput]) -> LaneSchedulerOutput:
    """One output for the worker; parts[i] is lane i's. Requests keep lane order, and their order within a lane."""
    merged = _merged_fields(parts, _OUTPUT_RULES)
    lane_of = {request_id: lane for lane, part in enumerate(parts) for request_id in part.num_scheduled_tokens}
    return LaneSchedulerOutput(**merged, lane_of=lane_of)


def merge_grammars(parts: Iterable[Callable[[], GrammarOutput | None]]) -> GrammarOutput | None:
    """One bitmask in request order of the lanes. The parts are asked one by one: vLLM hands out a shared buffer."""
    import numpy as np

    found: list[Any] = []
    for ask in parts:
        part = ask()
        if part is not None:
            part.grammar_bitmask = part.grammar_bitmask.copy()
            found.append(part)
    if not found:
        return None
    merged = _merged_fields(found, {"grammar_bitmask": np.concatenate})
    return type(found[0])(**merged)


def merge_outputs(parts: Iterable[dict[int, EngineCoreOutputs]]) -> dict[int, EngineCoreOutputs]:
    """Outputs by client. The statistics of all lanes become one and go to one client, as vLLM sends them."""
    merged: dict[int, EngineCoreOutputs] = {}
    stats: list[SchedulerStats] = []
    for part in parts:
        for client, outputs in part.items():
            if outputs.scheduler_stats is not None:
                stats.append(outputs.scheduler_stats)
                outputs.scheduler_stats = None
            kept = merged.setdefault(client, outputs)
            if kept is not outputs:
                kept.outputs.extend(outputs.outputs)
                kept.finished_requests = _merge([kept.finished_requests, outputs.finished_requests])
    if stats:
        # Every lane made an entry to carry its statistics, so there is one.
        next(iter(merged.values())).scheduler_stats = merge_stats(stats)
    return merged


def merge_stats(parts: Sequence[SchedulerStats]) -> SchedulerStats:
    """Counts of all lanes added up; the KV use is the mean."""
    return type(parts[0])(**_merged_fields(parts, _STATS_RULES))


def _merged_fields(parts: Sequence[Any], rules: dict[str, Callable[[Sequence[Any]], Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for item in fields(parts[0]):
        values = [getattr(part, item.name) for part in parts]
        rule = rules.get(item.name)
        merged[item.name] = rule(values) if rule is not None else _merge(values)
    return merged


def _merge(values: Sequence[Any]) -> Any:
    """Flags are or-ed, numbers added, lists joined, sets united, mappings merged; None everywhere stays None."""
    filled = [value for value in values if value]
    if len(filled) < 2:
        # Most fields of most steps: nothing, or one lane's.
        return filled[0] if filled else next((value for value in values if value is not None), None)
    first = filled[0]
    if isinstance(first, bool):
        return True
    if isinstance(first, int | float):
        return sum(filled)
    if isinstance(first, list):
        return [item for value in filled for item in value]
    if isinstance(first, set):
        return set[Any]().union(*filled)
    if isinstance(first, dict):
        return _merge_mappings(filled)
    if is_dataclass(first):
        return type(first)(**_merged_fields(filled, {}))
    return first


def _merge_mappings(values: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    merged: dict[Any, Any] = {}
    for value in values:
        for key, item in value.items():
            merged[key] = _merge([merged[key], item]) if key in merged else item
    return merged
