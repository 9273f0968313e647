"""How long the synthetic model's steps take."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

CONFIG_KEY = "tt_synthetic"
"""The key of a checkpoint's config.json that holds the cost; vLLM's --hf-overrides can replace it."""


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """decode = decode_ms + decode_ms_per_user * (users - 1) + decode_us_per_context_token * context;
    prefill = prefill_floor_ms + prefill_ms_per_token * tokens.

    users: rows of the step; context: cached tokens that they read, all together; tokens: computed by the call.
    """

    decode_ms: float = 10.0
    decode_ms_per_user: float = 0.0
    decode_us_per_context_token: float = 0.0
    prefill_floor_ms: float = 0.0
    prefill_ms_per_token: float = 0.25

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{CONFIG_KEY}.{name}={value!r} is not a time: give a number, 0 or more")

    @staticmethod
    def of(values: Mapping[str, float] | None) -> "DeviceCost":
        """From the mapping in config.json, None = the defaults. Raises ValueError for an unknown key or a bad value."""
        given = dict(values or {})
        allowed = DeviceCost.__slots__
        unknown = sorted(set(given) - set(allowed))
        if unknown:
            raise ValueError(f"{CONFIG_KEY} has the unknown key {unknown[0]!r}: allowed are {', '.join(allowed)}")
        return DeviceCost(**given)

    def decode_seconds(self, users: int, context: int) -> float:
        """Duration of a decode step of at least one user."""
        return (
            self.decode_ms + self.decode_ms_per_user * (users - 1) + self.decode_us_per_context_token * context / 1e3
        ) / 1e3

    def prefill_seconds(self, tokens: int) -> float:
        """Duration of a prefill call."""
        return (self.prefill_floor_ms + self.prefill_ms_per_token * tokens) / 1e3
