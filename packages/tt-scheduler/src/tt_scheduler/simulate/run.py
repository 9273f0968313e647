"""Discrete-event run: arrivals, steps and their durations on one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tt_scheduler.phase import Phase
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.simulate.cost import CostModel
from tt_scheduler.simulate.engine import Engine
from tt_scheduler.simulate.lane import EngineSize, Scheduled, SimRequest
from tt_scheduler.simulate.workload import Arrival


@dataclass(slots=True)
class Served:
    """One request of a run: when it came and when each of its tokens went out, in seconds."""

    arrival: Arrival
    tokens: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One step of a run. start: seconds; ms: duration; running, waiting: requests when it was decided."""

    start: float
    ms: float
    phase: Phase
    tokens: int
    users: int
    running: int
    waiting: int
    kv_used: float


@dataclass(slots=True)
class Run:
    """What happened."""

    served: list[Served]
    steps: list[StepEvent] = field(default_factory=list[StepEvent])

    @property
    def phase_counts(self) -> dict[str, int]:
        counts = {Phase.PREFILL.value: 0, Phase.DECODE.value: 0}
        for step in self.steps:
            counts[step.phase.value] += 1
        return counts

    @property
    def busy_share(self) -> float:
        """Share of the time from the first arrival to the last token that the device worked."""
        if not self.steps:
            return 0.0
        end = self.steps[-1].start + self.steps[-1].ms / 1e3
        return sum(step.ms for step in self.steps) / 1e3 / (end - min(s.arrival.at for s in self.served))


class Simulation:
    """One workload on one engine and one device.

    overlapped:  the engine decides a step when the one before it starts, as with asynchronous scheduling, and a decode
                 step that follows another is submitted before that one ends, so the engine's own time is hidden
    progress:    called with the share of requests that have arrived, about a hundred times
    """

    def __init__(
        self,
        workload: Sequence[Arrival],
        cost: CostModel,
        size: EngineSize,
        policy: PhasePolicy,
        overlapped: bool = True,
        progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        self._arrivals = sorted(workload, key=lambda arrival: arrival.at)
        self._cost = cost
        self._overlapped = overlapped
        self._progress = progress
        self._engine = Engine(size, policy)
        self._run = Run([Served(arrival) for arrival in self._arrivals])
        self._by_name = {f"r{i}": served for i, served in enumerate(self._run.served)}
        self._next = 0

    def run(self) -> Run:
        """Run to the last token."""
        now = 0.0
        in_flight: tuple[Scheduled, float] | None = None
        while True:
            self._admit(now)
            scheduled = self._engine.schedule(now)
            if in_flight is not None and self._overlapped:
                now = self._finish(*in_flight)
                in_flight = None
            if scheduled.step.phase is not Phase.EMPTY:
                in_flight = self._start(scheduled, now)
                if not self._overlapped:
                    now = self._finish(*in_flight)
                    in_flight = None
            elif not self._engine.busy:
                if self._next == len(self._arrivals):
                    return self._run
                now = max(now, self._arrivals[self._next].at)

    def _admit(self, now: float) -> None:
        while self._next < len(self._arrivals) and self._arrivals[self._next].at <= now:
            arrival = self._arrivals[self._next]
            self._engine.add(SimRequest(f"r{self._next}", arrival.prompt, arrival.output, arrival.at))
            self._next += 1
            if self._next % max(1, len(self._arrivals) // 100) == 0:
                self._progress(self._next / len(self._arrivals))

    def _start(self, scheduled: Scheduled, now: float) -> tuple[Scheduled, float]:
        step = scheduled.step
        steady = bool(self._run.steps) and step.phase is self._run.steps[-1].phase is Phase.DECODE
        hidden = self._overlapped and steady
        ms = self._cost.step_ms(step.phase, step.tokens, scheduled.users, scheduled.context, hidden=hidden)
        running = sum(len(lane.running) for lane in self._engine.lanes)
        waiting = sum(len(lane.waiting) for lane in self._engine.lanes)
        self._run.steps.append(
            StepEvent(now, ms, step.phase, step.tokens, scheduled.users, running, waiting, self._engine.kv_used)
        )
        return scheduled, now + ms / 1e3

    def _finish(self, scheduled: Scheduled, end: float) -> float:
        for request in self._engine.complete(scheduled):
            self._by_name[request.name].tokens.append(end)
        self._engine.policy.observe(scheduled.step, self._run.steps[-1].ms)
        return end
