"""One scheduling pass of vLLM's scheduler that sees only the requests of one phase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm.v1.core.sched.interface import PauseState

from tt_scheduler.phase import Demand, Phase
from tt_scheduler.vllm import _compat

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler


def demand_of(scheduler: Scheduler) -> Demand:
    """Count what vLLM's scheduler could do next. O(running)."""
    paused = scheduler.pause_state
    if paused is PauseState.PAUSED_ALL:
        return Demand(0, 0, 0)
    chunks = decodable = 0
    for request in scheduler.running:
        if request.is_prefill_chunk:
            chunks += 1
        elif not _compat.tokens_in_flight_end(request):
            decodable += 1
    waiting = _compat.count_waiting(scheduler) if paused is PauseState.UNPAUSED else 0
    return Demand(waiting, chunks, decodable)


@contextmanager
def only(scheduler: Scheduler, phase: Phase) -> Iterator[None]:
    """Hide from one `schedule()` call what the phase may not see; restore it whatever happens.

    Prefill: running decodes are taken out of `running` and the limit is lowered by their number.
    Decode: unfinished prompts are taken out of `running`, and new admissions are paused.
    """
    if phase is Phase.EMPTY:
        yield
        return
    before = list(scheduler.running)
    keep_chunks = phase is Phase.PREFILL
    hidden = {r.request_id for r in before if r.is_prefill_chunk is not keep_chunks}
    scheduler.running = [r for r in before if r.request_id not in hidden]
    limits = {name: getattr(scheduler, name) for name in _compat.running_limits(scheduler)}
    pause = scheduler.pause_state
    try:
        for name, limit in limits.items():
            setattr(scheduler, name, limit - len(hidden))
        if phase is Phase.DECODE and pause is PauseState.UNPAUSED:
            scheduler._pause_state = PauseState.PAUSED_NEW
        yield
    finally:
        scheduler._pause_state = pause
        for name, limit in limits.items():
            setattr(scheduler, name, limit)
        scheduler.running = _merge(before, hidden, scheduler.running)


def _merge(before: list, hidden: set[str], after: list) -> list:
    """Former order for whoever is still running, newcomers at the end: vLLM preempts from the end."""
    if not hidden:
        return after
    alive = {r.request_id for r in after}
    known = {r.request_id for r in before}
    stayed = [r for r in before if r.request_id in hidden or r.request_id in alive]
    return stayed + [r for r in after if r.request_id not in known]
