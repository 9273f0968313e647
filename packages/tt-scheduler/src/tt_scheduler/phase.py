"""What one step may be, and what the requests ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(Enum):
    """A step replays one trace, so it is all prefill, all decode, or nothing."""

    EMPTY = "empty"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Demand:
    """What the requests of one scheduler could do next.

    waiting:   requests not admitted yet that have a place to go to, including those blocked on a grammar (count)
    chunks:    admitted requests whose prompt is not completely scheduled (count)
    decodable: admitted requests that can take a decode step now (count)
    """

    waiting: int
    chunks: int
    decodable: int

    def __post_init__(self) -> None:
        if self.waiting < 0 or self.chunks < 0 or self.decodable < 0:
            raise ValueError(f"a demand counts requests and cannot be negative: {self}")

    @property
    def prefillable(self) -> bool:
        """Whether any prefill work is pending. A request that waits for its grammar counts: it may be ready by now."""
        return bool(self.waiting or self.chunks)

    @property
    def idle(self) -> bool:
        return not (self.prefillable or self.decodable)

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.waiting + other.waiting, self.chunks + other.chunks, self.decodable + other.decodable)


NO_DEMAND = Demand(0, 0, 0)
