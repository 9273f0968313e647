"""Which phase a step takes. Pure: no engine, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable

from tt_scheduler.interleave import Interleave, InterleaveOptions
from tt_scheduler.phase import Demand, Phase


class PhasePolicy:
    """Prefill first, decode when its turn has come, and never a step that does nothing while work exists.

    Rules (docs/scheduling.md):
      S1  Pending prefill work is served first.
      S2  Unless the interleave is due and someone can decode.
      S3  A pass that schedules nothing is retried in the other phase within the same step, when that phase has work.
      S4  No work at all is an empty step.
    """

    def __init__(self, options: InterleaveOptions | None = None) -> None:
        self.interleave = Interleave(options or InterleaveOptions())

    def first(self, demand: Demand) -> Phase:
        """The phase to try first."""
        if demand.prefillable and not (self.interleave.due and demand.decodable):
            return Phase.PREFILL
        return Phase.DECODE if demand.decodable else Phase.EMPTY

    @staticmethod
    def second(demand: Demand, tried: Phase) -> Phase:
        """The phase to try after `tried` scheduled no token; EMPTY when there is nothing else to do."""
        if tried is Phase.PREFILL and demand.decodable:
            return Phase.DECODE
        if tried is Phase.DECODE and demand.prefillable:
            return Phase.PREFILL
        return Phase.EMPTY

    def step(self, demand: Demand, attempt: Callable[[Phase], bool]) -> Phase:
        """Run one step: try a phase, retry in the other when nothing was scheduled, account for what ran.

        attempt(phase) schedules a pass and answers whether it scheduled any token. Returns the phase that ran.
        """
        ran = Phase.EMPTY
        phase = self.first(demand)
        if phase is Phase.EMPTY:
            attempt(Phase.EMPTY)
        elif attempt(phase):
            ran = phase
        else:
            other = self.second(demand, phase)
            if other is not Phase.EMPTY and attempt(other):
                ran = other
        self.interleave.record(demand, ran)
        return ran
