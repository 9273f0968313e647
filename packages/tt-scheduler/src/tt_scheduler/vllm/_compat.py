"""What differs between vLLM releases for a scheduler, each probe with the release that changed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

if TYPE_CHECKING:
    from vllm.config import SchedulerConfig
    from vllm.v1.request import Request

# `schedule()` passes over a running request whose `next_decode_eligible_step` lies ahead; meant for pipeline
# parallelism, honoured for every request. It is what makes a pass see one phase only.
CAN_DEFER_RUNNING = "next_decode_eligible_step" in Scheduler.schedule.__code__.co_names

# Since 0.26 `update_from_output` ends requests whose grammar does not compile: the only door to end one with an error.
CAN_END_FAILED = "grammar_compile_error_reqs" in Scheduler.update_from_output.__code__.co_names

# 0.31 replaced `skipped_waiting` by `kv_holding_waiting`; what waits on a grammar stays in `waiting` since then.
_WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")


def admission_limit(scheduler: Scheduler) -> str:
    """Name of the attribute that ends admission. 0.31 split it from the size of the running list."""
    return "max_num_active_reqs" if hasattr(scheduler, "max_num_active_reqs") else "max_num_running_reqs"


def divide_rows(config: SchedulerConfig, lanes: int) -> None:
    """Turn the limits of all lanes into those of one. 0.31 added `max_num_active_seqs`."""
    config.max_num_seqs //= lanes
    name = "max_num_active_seqs"
    active = getattr(config, name, None)
    if active is not None:
        setattr(config, name, max(1, active // lanes))


def count_running(scheduler: Scheduler) -> int:
    """Requests that occupy a slot. A streaming session that waits for its next input still does."""
    return len(scheduler.running) + scheduler.num_waiting_for_streaming_input


def count_admissible(scheduler: Scheduler) -> int:
    """Waiting requests that a pass could admit now, whatever queue this release keeps them in."""
    if count_running(scheduler) >= getattr(scheduler, admission_limit(scheduler)):
        return 0
    if scheduler.pause_state is PauseState.UNPAUSED:
        queues = [getattr(scheduler, name, ()) for name in _WAITING_QUEUES]
        return sum(map(len, queues)) - scheduler.num_waiting_for_streaming_input
    # A paused scheduler of 0.31 and later still admits requests that hold KV blocks.
    return len(getattr(scheduler, "kv_holding_waiting", ()))


def fail_requests(scheduler: Scheduler, failed: Mapping[str, str]) -> None:
    """Let the next `update_from_output` end these requests (id -> why), by the way of a grammar that does not compile.

    0.29 to 0.33 turned the set of ids into a mapping to the error that the client reads; before, it reads none.
    """
    pending: Any = scheduler.grammar_compile_error_reqs
    if isinstance(pending, set):
        pending.update(failed)
        return
    from vllm.outputs import RequestError

    for request_id, why in failed.items():
        pending[request_id] = RequestError(code="server_error", message=why)


def tokens_in_flight_end(request: Request, max_model_len: int) -> bool:
    """Whether the tokens already in flight are sure to finish the request, so that vLLM will not schedule it again.

    Source: the running loop of `Scheduler.schedule`, unchanged in 0.24 to 0.33.
    """
    placeholders = request.num_output_placeholders
    if not placeholders:
        return False
    computed = request.num_computed_tokens
    return (
        computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens or computed >= max_model_len - 1
    )
