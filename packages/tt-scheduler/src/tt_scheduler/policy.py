"""Which phase a step takes. Pure: no engine, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable

from tt_scheduler.interleave import Interleave, InterleaveOptions
from tt_scheduler.phase import Demand, Phase
from tt_scheduler.plan import Outcome, Pass, Step
from tt_scheduler.target import Chunking, LatencyTarget


class PhasePolicy:
    """Prefill first, decode when its turn has come, and never a step that does nothing while work exists.

    Rules (docs/scheduling.md):
      S1  Pending prefill work is served first.
      S2  Unless the interleave is due and someone can decode.
      S3  A pass that schedules nothing is retried in the other phase within the same step, when that phase has work.
      S4  No work at all is an empty step, and still a pass: the engine drains what finished.
      S5  A retry after a pass that preempted admits nobody: what was preempted may have a token in flight.
    """

    def __init__(self, options: InterleaveOptions | None = None, chunking: Chunking | None = None) -> None:
        options = options or InterleaveOptions()
        self.interleave = Interleave(options)
        self.target: LatencyTarget | None = None
        if options.decode_interleave_target_itl_ms is not None:
            self.target = LatencyTarget(
                options.decode_interleave_target_itl_ms, options.decode_interleave_decode_steps, chunking or Chunking()
            )

    def decide(self, demand: Demand) -> Phase:
        """The phase to try first (S1, S2, S4)."""
        if demand.prefillable and not (demand.decodable and self._decode_due()):
            return Phase.PREFILL
        return Phase.DECODE if demand.decodable else Phase.EMPTY

    @staticmethod
    def fallback(demand: Demand, tried: Phase) -> Phase:
        """The phase to try after `tried` scheduled no token; EMPTY when there is nothing else to do (S3)."""
        if tried is Phase.PREFILL and demand.decodable:
            return Phase.DECODE
        if tried is Phase.DECODE and demand.prefillable:
            return Phase.PREFILL
        return Phase.EMPTY

    def permit(self, demand: Demand, phase: Phase) -> Pass:
        """The pass that a phase may make under this demand. Only prefill that keeps somebody waiting is limited."""
        target = self.target
        if phase is Phase.PREFILL and demand.decodable and target is not None and target.ready:
            return target.limit()
        return Pass(phase)

    def step(self, demand: Demand, attempt: Callable[[Pass], Outcome]) -> Step:
        """Run one step: try a phase, retry in the other when nothing was scheduled, account for what ran.

        attempt(pass) makes one scheduling pass of the engine and says what came of it. It is called at least once.
        """
        phase = self.decide(demand)
        outcome = attempt(self.permit(demand, phase))
        if not outcome.tokens:
            other = Phase.EMPTY if phase is Phase.EMPTY else self.fallback(demand, phase)
            if other is not Phase.EMPTY:
                permit = self.permit(demand, other)
                outcome = attempt(permit.closed() if outcome.preempted else permit)
            phase = other
        phase = phase if outcome.tokens else Phase.EMPTY
        ran = Step(phase, outcome.tokens, demand.decodable, requests=outcome.requests)
        self.interleave.record(demand, ran.phase)
        if self.target is not None:
            self.target.record(demand, ran)
        return ran

    def observe(self, step: Step, ms: float) -> None:
        """Tell the policy how long a step took, in milliseconds. Only a latency target learns from it."""
        if self.target is not None:
            self.target.observe(step, ms)

    def _decode_due(self) -> bool:
        target = self.target
        return target.due if target is not None and target.ready else self.interleave.due
