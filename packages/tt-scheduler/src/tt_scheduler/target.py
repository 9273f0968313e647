"""A latency target in place of a fixed ratio: as much prefill between two decode steps as fits under the target."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tt_scheduler.estimate import StepTimes
from tt_scheduler.phase import Demand, Phase
from tt_scheduler.plan import Pass, Step

# Share of the target that is planned with. The rest absorbs what the estimate cannot know: the context that grows
# between two steps, and the engine's own time.
PLANNED = 0.98


@dataclass(frozen=True, slots=True)
class Chunking:
    """How the engine may split prompts.

    allowed:  whether a prompt may be split over several prefill steps at all
    quantum:  chunk lengths are multiples of this many tokens (a KV block, so that no block is computed twice)
    """

    allowed: bool = False
    quantum: int = 32

    def __post_init__(self) -> None:
        if self.quantum < 1:
            raise ValueError(f"quantum is {self.quantum}: a chunk has at least one token")


class LatencyTarget:
    """Keeps the gap between two decode steps under the target.

    After a decode step a prefill step may always follow, so prefill waits for one insertion at most, whatever the
    target. Further prefill steps follow while they and the next decode step fit under the target.
    """

    def __init__(self, target_ms: float, decode_steps: int, chunking: Chunking) -> None:
        self.target_ms = target_ms
        self.chunking = chunking
        self.times = StepTimes()
        self._decode_steps = decode_steps
        self._since_decode: list[Step] = []
        self._owed = 0

    @property
    def ready(self) -> bool:
        """Whether there is an estimate to plan with."""
        return self.times.ready

    @property
    def waited_ms(self) -> float:
        """How long the running requests have waited since their last decode step: measured where known."""
        return sum(step.ms for step in self._since_decode)

    @property
    def shortest_chunk(self) -> int:
        """The shortest chunk worth a step, in tokens: below it the fixed part of a prefill step outweighs the rest."""
        quantum = self.chunking.quantum
        even = self.times.floor_ms / self.times.ms_per_token if self.times.ms_per_token else 0.0
        # An estimate is never exact: a hair over a multiple is that multiple.
        return max(1, math.ceil(even / quantum - 0.05)) * quantum

    @property
    def shortest_prefill_ms(self) -> float:
        """Expected duration of the least prefill step worth taking: a shortest chunk, or a typical whole prompt."""
        if self.chunking.allowed:
            return self.times.prefill_ms(self.shortest_chunk)
        return self.times.typical_prefill_ms

    @property
    def feasible(self) -> bool:
        """Whether one decode step and the shortest useful prefill step fit under the target."""
        return not self.ready or self.target_ms >= self.times.decode_ms + self.shortest_prefill_ms

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens a second that go through while somebody decodes all the time; 0 before the first estimate."""
        if not self.ready:
            return 0.0
        room = PLANNED * self.target_ms - self.times.decode_ms
        tokens = self.times.tokens_within(max(room, self.shortest_prefill_ms)) if self.chunking.allowed else 0
        prefill_ms = self.times.prefill_ms(tokens) if tokens else self.times.typical_prefill_ms
        tokens = tokens or self.times.typical_prefill_tokens
        return tokens / (prefill_ms + self._decode_steps * self.times.decode_ms) * 1e3

    @property
    def due(self) -> bool:
        """Whether the next step belongs to the running requests."""
        if self._owed:
            return True
        return bool(self._since_decode) and self._room_ms() < self.shortest_prefill_ms

    def limit(self) -> Pass:
        """What the next prefill pass may schedule while somebody could decode."""
        if not self.chunking.allowed:
            # A whole prompt cannot be cut to fit; one at a time keeps the gap as short as the prompts allow.
            return Pass(Phase.PREFILL, max_admissions=1, shortest_first=True)
        quantum = self.chunking.quantum
        tokens = self.times.tokens_within(self._room_ms()) // quantum * quantum
        return Pass(Phase.PREFILL, max_tokens=max(tokens, self.shortest_chunk), shortest_first=True)

    def record(self, demand: Demand, step: Step) -> None:
        """Account for the step that ran under this demand; sets its forecast."""
        step.ms = self.times.expect(step.phase, step.tokens)
        if step.phase is not Phase.PREFILL:
            self._since_decode.clear()
            if step.phase is Phase.DECODE:
                self._owed = max(self._owed or self._decode_steps, 1) - 1 if demand.prefillable else 0
        elif demand.decodable:
            self._since_decode.append(step)
        else:
            self._since_decode.clear()
            self._owed = 0

    def observe(self, step: Step, ms: float) -> None:
        """Replace a step's forecast by its measured duration and learn from it. No duration keeps the forecast."""
        if ms > 0:
            self.times.observe(step, ms)
            step.ms = ms

    def _room_ms(self) -> float:
        return PLANNED * self.target_ms - self.waited_ms - self.times.decode_ms
