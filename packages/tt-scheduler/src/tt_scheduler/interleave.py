"""Decode interleave: bounds how long running requests wait behind other requests' prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tt_scheduler.phase import Demand, Phase


@dataclass(frozen=True, slots=True)
class InterleaveOptions:
    """The three documented options, keys of `additional_config["tt"]`.

    decode_interleave_enabled:        insert decode steps into a run of prefill steps
    decode_interleave_prefill_steps:  prefill steps in a row, while someone could decode, before an insertion (>= 1)
    decode_interleave_decode_steps:   decode steps of one insertion (>= 1)
    """

    decode_interleave_enabled: bool = True
    decode_interleave_prefill_steps: int = 2
    decode_interleave_decode_steps: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.decode_interleave_enabled, bool):
            raise ValueError(_message("decode_interleave_enabled", self.decode_interleave_enabled, "true or false"))
        for name in ("decode_interleave_prefill_steps", "decode_interleave_decode_steps"):
            value = getattr(self, name)
            # bool is an int in Python; `true` as a number of steps is a mistake, not a 1.
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(_message(name, value, "a whole number of at least 1"))

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> InterleaveOptions:
        """Pick the interleave keys out of a `tt` options mapping. Raises ValueError that names the key."""
        return cls(**{f.name: options[f.name] for f in fields(cls) if f.name in options})  # type: ignore[arg-type]


def _message(name: str, value: object, allowed: str) -> str:
    return f'additional_config["tt"]["{name}"] is {value!r}: allowed is {allowed}'


class Interleave:
    """Counts steps and says when the next step belongs to the running requests.

    The bound: between two decode steps of a request there are at most `prefill_steps` prefill steps.
    It only ever asks for decode; it never forces a prefill.
    """

    def __init__(self, options: InterleaveOptions) -> None:
        self.options = options
        self._prefills = 0
        self._decodes = 0

    @property
    def due(self) -> bool:
        """Whether the allowance of prefill steps is used up."""
        return self.options.decode_interleave_enabled and self._prefills >= self.options.decode_interleave_prefill_steps

    def record(self, demand: Demand, ran: Phase) -> None:
        """Account for the step that ran under this demand."""
        if ran is Phase.PREFILL:
            self._decodes = 0
            # A prefill that kept nobody waiting costs no allowance.
            self._prefills = self._prefills + 1 if demand.decodable else 0
        elif ran is Phase.DECODE:
            self._decodes += 1
            if not demand.prefillable or self._decodes >= self.options.decode_interleave_decode_steps:
                self._prefills = self._decodes = 0
