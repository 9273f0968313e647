"""What differs between vLLM releases for a worker, each probe with the release that changed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

try:  # moved in 0.33
    from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
except ImportError:
    from vllm.v1.core.kv_cache_utils import get_kv_cache_groups  # pyright: ignore[reportAttributeAccessIssue]

__all__ = ["block_copies", "get_kv_cache_groups", "output_of_admission"]

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput


def output_of_admission(request: NewRequestData) -> list[int]:
    """Tokens generated before a new tenancy. The V2 hand-over sends a resumed request as new, with all its tokens.

    The V1 runner is pinned, and both forms are understood (0.29 made V2 the default for every model).
    """
    everything = request.prefill_token_ids
    return list(everything[len(request.prompt_token_ids or ()) :]) if everything is not None else []


def block_copies(output: SchedulerOutput) -> Sequence[object]:
    """Copy-on-write copies of KV blocks; the field exists since 0.26."""
    return getattr(output, "kv_cache_block_copies", None) or ()
