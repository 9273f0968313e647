"""Running estimate of how long steps take, from measured steps."""

from __future__ import annotations

from tt_scheduler.phase import Phase
from tt_scheduler.plan import Step

# Weight of the past at each observation. 0.95 forgets half of it in 14 steps: fast enough to follow a growing
# context, slow enough that one odd step does not turn the policy.
MEMORY = 0.95
# Share of a shorter decode step that is believed at once.
DECAY = 0.3
# A step may be taken for at most this many times what was expected. A first step of a new shape compiles and captures
# for seconds; believed as it is, it would throttle prompts for the next hundred steps.
SURPRISE = 3.0
# How far the line is believed beyond the longest prefill step seen.
REACH = 2


class StepTimes:
    """Prefill is a line through (tokens, ms) by weighted least squares, decode follows the last step.

    Source: the cost shape of tt-metal models, prefill = floor + tokens / rate (tt-metal contract 4.2).
    """

    def __init__(self) -> None:
        self._decode_ms: float | None = None
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._floor = self._slope = 0.0
        self._seen = self._longest = 0

    @property
    def ready(self) -> bool:
        """Whether both kinds of step were seen."""
        return self._decode_ms is not None and self._weight > 0

    @property
    def decode_ms(self) -> float:
        """Expected duration of the next decode step in milliseconds; 0 before the first."""
        return self._decode_ms or 0.0

    @property
    def floor_ms(self) -> float:
        """Fixed part of a prefill step in milliseconds."""
        return self._floor

    @property
    def ms_per_token(self) -> float:
        """Marginal cost of a prompt token in milliseconds."""
        return self._slope

    @property
    def typical_prefill_ms(self) -> float:
        """Mean duration of recent prefill steps in milliseconds; 0 before the first."""
        return self._y / self._weight if self._weight else 0.0

    @property
    def typical_prefill_tokens(self) -> float:
        """Mean tokens of recent prefill steps; 0 before the first."""
        return self._x / self._weight if self._weight else 0.0

    @property
    def prefill_steps(self) -> int:
        """Prefill steps seen."""
        return self._seen

    def prefill_ms(self, tokens: int) -> float:
        """Expected duration of a prefill step of that many tokens in milliseconds; 0 before the first."""
        return self._floor + tokens * self._slope

    def expect(self, phase: Phase, tokens: int) -> float:
        """Expected duration of a step in milliseconds; 0 when nothing is known."""
        return self.prefill_ms(tokens) if phase is Phase.PREFILL else self.decode_ms

    def tokens_within(self, ms: float) -> int:
        """How many prompt tokens fit into that time; 0 when the fixed part alone does not.

        At most twice as many as were ever measured: a line through short prompts says little about long ones.
        """
        left = ms - self._floor
        if left <= 0:
            return 0
        most = REACH * self._longest
        return min(int(left / self._slope), most) if self._slope else most

    def observe(self, step: Step, ms: float) -> None:
        """Learn from a step that took `ms` milliseconds. Other values than a positive duration are ignored."""
        if ms <= 0:
            return
        if step.phase is Phase.DECODE:
            self._learn_decode(ms)
        elif step.phase is Phase.PREFILL and step.tokens:
            self._learn_prefill(step.tokens, ms)

    def _learn_decode(self, ms: float) -> None:
        known = self._decode_ms
        if known is None:
            self._decode_ms = ms
            return
        ms = min(ms, SURPRISE * known)
        # Up at once, down slowly: a forecast that is too short costs latency, one that is too long a little throughput.
        self._decode_ms = ms if ms > known else known + DECAY * (ms - known)

    def _learn_prefill(self, tokens: int, ms: float) -> None:
        if self._weight:
            ms = min(ms, SURPRISE * self.prefill_ms(tokens))
        self._seen += 1
        self._longest = max(self._longest, tokens)
        self._weight = MEMORY * self._weight + 1
        self._x = MEMORY * self._x + tokens
        self._y = MEMORY * self._y + ms
        self._xx = MEMORY * self._xx + tokens * tokens
        self._xy = MEMORY * self._xy + tokens * ms
        self._fit()

    def _fit(self) -> None:
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - mean_x * mean_x
        # Chunks of one size show no slope: keep the last one and move the line up or down.
        if variance > (0.05 * mean_x) ** 2:
            self._slope = (self._xy / self._weight - mean_x * mean_y) / variance
        elif not self._slope:
            self._slope = mean_y / mean_x
        self._slope = max(self._slope, 0.0)
        self._floor = mean_y - self._slope * mean_x
        if self._floor < 0:
            self._floor, self._slope = 0.0, mean_y / mean_x
