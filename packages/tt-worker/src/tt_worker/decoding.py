"""The requests of a decode step, and what follows from them for as long as they stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tt_worker.results import Batch
from tt_worker.tenants import State


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Made when the requests change, and used by every steady step until then.

    version: of the tenants;  asked: request ids in the engine's order
    batch:   in the order of the rows, so that the logits of a full batch are sampled where they lie
    index:   int64 [n], the same rows;  rows: the same as a set
    positions: int32 [n], what each request computes next; moved on by `advance`
    """

    version: int
    asked: list[str]
    batch: Batch
    index: NDArray[np.int64]
    rows: frozenset[int]
    positions: NDArray[np.int32]

    @staticmethod
    def of(version: int, asked: list[str], states: Sequence[State]) -> DecodeGroup:
        ordered = sorted(states, key=_row)
        rows = [state.row for state in ordered]
        batch = Batch.of(ordered, rows, [True] * len(rows))
        positions = np.array([state.computed for state in ordered], dtype=np.int32)
        return DecodeGroup(version, asked, batch, np.array(rows, dtype=np.int64), frozenset(rows), positions)

    def is_of(self, version: int, asked: list[str]) -> bool:
        """Whether a step asks for these requests, and nobody came or went in between."""
        return self.version == version and self.asked == asked

    def advance(self) -> None:
        """A step was submitted: each request has computed a token more."""
        np.add(self.positions, 1, out=self.positions)
        for state in self.batch.states:
            state.computed += 1

    def with_others(self, states: Sequence[State]) -> DecodeGroup:
        """These requests and others that the engine did not ask for."""
        return DecodeGroup.of(self.version, self.asked, [*self.batch.states, *states]) if states else self


def _row(state: State) -> int:
    return state.row
