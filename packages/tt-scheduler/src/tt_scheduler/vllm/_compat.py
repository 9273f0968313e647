"""What differs between vLLM releases for a scheduler, each probe with the release that changed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

# 0.31 replaced `skipped_waiting` by `kv_holding_waiting`; what waits on a grammar stays in `waiting` since then.
WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
# 0.31 split admission (`max_num_active_reqs`) from the size of the running list.
RUNNING_LIMITS = ("max_num_running_reqs", "max_num_active_reqs")


def count_waiting(scheduler: Scheduler) -> int:
    """Requests that are not admitted, wherever this release keeps them."""
    return sum(len(queue) for name in WAITING_QUEUES if (queue := getattr(scheduler, name, None)) is not None)


def running_limits(scheduler: Scheduler) -> Sequence[str]:
    """Names of the attributes that limit how many requests may run."""
    return [name for name in RUNNING_LIMITS if hasattr(scheduler, name)]


def tokens_in_flight_end(request: Request) -> bool:
    """Whether the tokens already in flight are sure to finish the request, so that vLLM will not schedule it again.

    Source: the async branch of `Scheduler.schedule`, unchanged in 0.24 to 0.33.
    """
    placeholders = request.num_output_placeholders
    return placeholders > 0 and (
        request.num_computed_tokens + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens
    )
