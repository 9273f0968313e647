"""In which order waiting prompts are admitted while a latency target squeezes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How long a prompt may be overtaken by shorter ones, in seconds. Whoever waited longer goes first.
PATIENCE_S = 4.0


@dataclass(frozen=True, slots=True)
class WaitingPrompt:
    """A request that is not admitted.

    tokens:    what its prefill has to compute, tokens
    waited_s:  seconds since it arrived
    resumed:   whether it was running before and lost its KV cache
    """

    tokens: int
    waited_s: float
    resumed: bool = False


def admission_order(waiting: Sequence[WaitingPrompt], patience_s: float = PATIENCE_S) -> list[int]:
    """Indices of `waiting` in the order of admission: resumed ones, then the overdue by age, then the shortest.

    A prompt that is cut into chunks holds up everybody behind it for seconds; letting the short ones pass costs the
    long ones little. Resumed requests come first because somebody watches their output stand still.
    """

    def key(index: int) -> tuple[int, float, float]:
        prompt = waiting[index]
        if prompt.resumed:
            return 0, 0, 0
        if prompt.waited_s >= patience_s:
            return 1, -prompt.waited_s, 0
        return 2, prompt.tokens, -prompt.waited_s

    return sorted(range(len(waiting)), key=key)
