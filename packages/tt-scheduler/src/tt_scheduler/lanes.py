"""Lanes: independent groups of rows that share one device step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_scheduler.phase import Demand

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


def share_tokens(tokens: int, demands: Sequence[Demand], quantum: int) -> list[int | None]:
    """Divide a step's prompt tokens evenly among the lanes that have prefill work, in multiples of `quantum`.

    Each such lane gets one quantum at least, so that no lane starves. A lane without prefill work gets None.
    """
    takers = sum(demand.prefillable for demand in demands)
    if not takers:
        return [None] * len(demands)
    share = max(tokens // takers // quantum, 1) * quantum
    return [share if demand.prefillable else None for demand in demands]
