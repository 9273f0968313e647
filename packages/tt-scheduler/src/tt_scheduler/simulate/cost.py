"""How long a step takes on a device, and published figures for some."""

from __future__ import annotations

from dataclasses import dataclass

from tt_scheduler.phase import Phase


@dataclass(frozen=True, slots=True)
class CostModel:
    """decode = first_user + per_user * (users - 1) + per_context_token * context; prefill = floor + tokens / rate.

    first_user_ms, per_user_ms:  a decode step of one user, and each further one
    per_context_us:              each token of KV cache that a decode step reads, microseconds
    prefill_floor_ms:            fixed part of a prefill step
    prefill_tokens_per_s:        marginal rate of a prefill step
    overhead_ms:                 the engine's own time between two steps, where the device waits for it
    """

    first_user_ms: float
    per_user_ms: float
    per_context_us: float
    prefill_floor_ms: float
    prefill_tokens_per_s: float
    overhead_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: a cost cannot be negative")
        if not self.prefill_tokens_per_s:
            raise ValueError("prefill_tokens_per_s is 0: prompts would never end")

    def decode_ms(self, users: int, context: int) -> float:
        """Duration of a decode step in milliseconds. context: tokens of KV cache of all its users."""
        return self.first_user_ms + self.per_user_ms * (users - 1) + self.per_context_us * context / 1e3

    def prefill_ms(self, tokens: int) -> float:
        """Duration of a prefill step in milliseconds."""
        return self.prefill_floor_ms + tokens / self.prefill_tokens_per_s * 1e3

    def step_ms(self, phase: Phase, tokens: int, users: int, context: int, *, hidden: bool = False) -> float:
        """Duration of a step in milliseconds, the engine's own time included unless the step before it hides that."""
        work = self.prefill_ms(tokens) if phase is Phase.PREFILL else self.decode_ms(users, context)
        return work if hidden else work + self.overhead_ms


# Source: tt-metal contract 4.2, the fit to published figures of one user with a short and with a 64k prompt and of 32
# users. The floor is what a prompt of 128 tokens takes beyond the rate of long ones; contract: 20 ms at least.
# Galaxy: 13.8 ms a step at 32 users, 53 and 99 ms to the first token of 128 and 507 tokens; its cost of context is not
# published and taken as half of T3K's 8B.
PRESETS: dict[str, CostModel] = {
    "llama-8b-n150": CostModel(35.3, 0.31, 0.36, 20.0, 1018),
    "llama-8b-n300": CostModel(22.6, 0.23, 0.24, 20.0, 1809),
    "llama-8b-t3k": CostModel(15.6, 0.20, 0.16, 20.0, 4054),
    "llama-70b-t3k": CostModel(60.2, 0.24, 0.36, 40.0, 881),
    "llama-70b-galaxy": CostModel(12.5, 0.04, 0.08, 37.0, 8200),
}
