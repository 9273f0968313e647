"""The requests of a decode step, and what follows from them for as long as they stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tt_worker.results import Batch
from tt_worker.tenants import State


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Made when the requests change, and used by every steady step until then.

    version: of the tenants;  asked: request ids in the engine's order
    batch:   in the order of the rows, so that the logits of a full batch are sampled where they lie
    rows:    the batch's as a set
    """

    version: int
    asked: list[str]
    batch: Batch
    rows: frozenset[int]

    @staticmethod
    def of(version: int, asked: list[str], states: Sequence[State]) -> DecodeGroup:
        ordered = sorted(states, key=_row)
        rows = [state.row for state in ordered]
        batch = Batch.of(ordered, rows, [True] * len(rows))
        return DecodeGroup(version, asked, batch, frozenset(rows))

    def is_of(self, version: int, asked: list[str]) -> bool:
        """Whether a step asks for these requests, and nobody came or went in between."""
        return self.version == version and self.asked == asked

    @property
    def positions(self) -> list[int]:
        """What each request computes next."""
        return [state.computed for state in self.batch.states]

    def advance(self) -> None:
        """A step was submitted: each request has computed a token more."""
        for state in self.batch.states:
            state.computed += 1

    def with_others(self, states: Sequence[State]) -> DecodeGroup:
        """These requests and others that the engine did not ask for."""
        return DecodeGroup.of(self.version, self.asked, [*self.batch.states, *states]) if states else self


def _row(state: State) -> int:
    return state.row
