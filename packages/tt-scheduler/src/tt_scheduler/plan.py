"""What a scheduling pass may do, what it did, and the step that came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tt_scheduler.phase import Phase


@dataclass(frozen=True, slots=True)
class Pass:
    """The permission for one scheduling pass.

    phase:           the only kind of work the pass may schedule
    max_tokens:      most prompt tokens it may schedule; None leaves the engine its own budget
    max_admissions:  most requests it may admit; None leaves the engine its own limit
    shortest_first:  whether waiting prompts are admitted in `admission_order` instead of the engine's own order
    """

    phase: Phase
    max_tokens: int | None = None
    max_admissions: int | None = None
    shortest_first: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"a pass may schedule at least one token: max_tokens is {self.max_tokens}")
        if self.max_admissions is not None and self.max_admissions < 0:
            raise ValueError(f"a pass cannot admit {self.max_admissions} requests")

    def closed(self) -> Pass:
        """The same pass without admissions."""
        return replace(self, max_admissions=0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did.

    tokens:     scheduled tokens
    preempted:  whether it took the KV cache of a running request away
    requests:   scheduled requests, for the log
    """

    tokens: int
    preempted: bool = False
    requests: int = 0


@dataclass(slots=True, eq=False)
class Step:
    """A step that ran. `ms` is a forecast until `PhasePolicy.observe` replaces it by the measured time.

    tokens:     scheduled tokens
    requests:   scheduled requests, for the log
    kept:       requests that could have decoded in this step (count)
    ms:         duration in milliseconds; 0 while nothing is known
    """

    phase: Phase
    tokens: int
    kept: int = 0
    ms: float = 0.0
    requests: int = 0
