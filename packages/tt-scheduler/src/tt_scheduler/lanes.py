"""Lanes: independent groups of rows that share one device step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tt_scheduler.phase import Demand
from tt_scheduler.plan import Pass

# A waiting request stands for a whole prompt, a running one for a token a step.
WAITING_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """How busy a lane is: counts of its waiting and running requests."""

    waiting: int
    running: int

    @property
    def score(self) -> int:
        return WAITING_WEIGHT * self.waiting + self.running


def least_loaded(loads: Sequence[LaneLoad]) -> int:
    """The lane for the next request: the lowest score, ties to the lowest lane.

    The request stays with its lane until it finishes, since its KV blocks live there.
    Raises ValueError when there is no lane.
    """
    if not loads:
        raise ValueError("there is no lane to assign a request to")
    return min(range(len(loads)), key=lambda lane: loads[lane].score)


def lane_permits(permit: Pass, demands: Sequence[Demand], preempted: Sequence[bool], quantum: int) -> list[Pass]:
    """One lane's part of a step's permit, lane by lane.

    All lanes share the phase. A limit on prompt tokens is divided evenly among the lanes that have prefill work, in
    multiples of `quantum` and one quantum at least, so that no lane starves. A lane that preempted earlier in the
    step admits nobody; the others are not held back by it.
    """
    takers = sum(demand.prefillable for demand in demands)
    if permit.max_tokens is not None and takers > 1:
        permit = replace(permit, max_tokens=max(permit.max_tokens // takers // quantum, 1) * quantum)
    return [permit.closed() if closed else permit for closed in preempted]
