"""Decode interleave: bounds how long running requests wait behind other requests' prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from tt_scheduler.phase import Demand, Phase


@dataclass(frozen=True, slots=True)
class InterleaveOptions:
    """The interleave keys of `additional_config["tt"]`.

    decode_interleave_enabled:        insert decode steps into a run of prefill steps
    decode_interleave_prefill_steps:  prefill steps in a row, while someone could decode, before an insertion (>= 1)
    decode_interleave_decode_steps:   decode steps of one insertion (>= 1)
    decode_interleave_target_itl_ms:  inter-token latency to hold, in milliseconds; None keeps the ratio above
    """

    decode_interleave_enabled: bool = True
    decode_interleave_prefill_steps: int = 2
    decode_interleave_decode_steps: int = 1
    decode_interleave_target_itl_ms: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.decode_interleave_enabled, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(_message("decode_interleave_enabled", self.decode_interleave_enabled, "true or false"))
        for name in ("decode_interleave_prefill_steps", "decode_interleave_decode_steps"):
            value = getattr(self, name)
            # bool is an int in Python; `true` as a number of steps is a mistake, not a 1.
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(_message(name, value, "a whole number of at least 1"))
        self._check_target(self.decode_interleave_target_itl_ms)

    def _check_target(self, target: object) -> None:
        name = "decode_interleave_target_itl_ms"
        if target is None:
            return
        if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < math.inf:
            raise ValueError(_message(name, target, "a positive number of milliseconds, or null for none"))
        if not self.decode_interleave_enabled:
            raise ValueError(_message(name, target, "null when decode_interleave_enabled is false; enable it"))

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> InterleaveOptions:
        """Pick the interleave keys out of a `tt` options mapping. Raises ValueError that names the key."""
        return cls(**{f.name: options[f.name] for f in fields(cls) if f.name in options})  # type: ignore[arg-type]


def _message(name: str, value: object, allowed: str) -> str:
    return f'additional_config["tt"]["{name}"] is {value!r}: allowed is {allowed}'


class Interleave:
    """Counts steps and says when the next step belongs to the running requests.

    The bound: between two decode steps there are at most `prefill_steps` prefill steps that kept somebody waiting.
    It only ever asks for decode; it never forces a prefill.
    """

    def __init__(self, options: InterleaveOptions) -> None:
        self.options = options
        self._prefills = 0
        self._owed = 0

    @property
    def due(self) -> bool:
        """Whether the next step belongs to the running requests."""
        return self._owed > 0

    def record(self, demand: Demand, ran: Phase) -> None:
        """Account for the step that ran under this demand. Every step counts."""
        if ran is Phase.PREFILL:
            # A prefill that kept nobody waiting costs no allowance.
            self._prefills = self._prefills + 1 if demand.decodable else 0
            options = self.options
            spent = options.decode_interleave_enabled and self._prefills >= options.decode_interleave_prefill_steps
            self._owed = options.decode_interleave_decode_steps if spent else 0
        else:
            self._prefills = 0
            self._owed = self._owed - 1 if self._owed and demand.prefillable else 0
