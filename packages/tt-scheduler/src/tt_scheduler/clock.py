"""How long the device spent on each step, from two moments of the engine loop."""

from __future__ import annotations

from collections import deque

from tt_scheduler.plan import Step


class StepClock:
    """A step occupies the device from when it was scheduled, or from when the step before it ended if that is later.

    Works for engines that schedule a step while the one before it runs. Steps end in the order in which they started.
    Times are seconds of any monotonic clock.
    """

    def __init__(self) -> None:
        self._running: deque[tuple[object, Step, float]] = deque()
        self._ended = float("-inf")

    def start(self, token: object, step: Step, now: float) -> None:
        """A step was scheduled. `token` identifies it at its end."""
        self._running.append((token, step, now))

    def end(self, token: object, now: float) -> tuple[Step, float] | None:
        """The step's result arrived: returns the step and its duration in milliseconds, None for an unknown token."""
        if all(known is not token for known, _, _ in self._running):
            return None
        while True:
            known, step, started = self._running.popleft()
            if known is token:
                began, self._ended = max(started, self._ended), now
                return step, (now - began) * 1e3
