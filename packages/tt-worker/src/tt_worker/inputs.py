"""Host tensors of a step, in memory that is reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tt_worker.media import Image, begun
from tt_worker.request import RequestState

# Submissions that may still read their inputs while the next is built: two in flight and one being built.
RING = 3

# Rows of a tile on the device, tokens.
TILE = 32


@dataclass(frozen=True, slots=True)
class PrefillInputs:
    """tokens int32 [n, max_end] from position 0, start_pos int32 [n], ends int64 [n], rows and the page table of each
    KV cache group, int32 [n, W], in the same order; images: of each row, those that begin before its end.

    Source: tt-metal contract 1.5.
    """

    tokens: NDArray[np.int32]
    page_tables: tuple[NDArray[np.int32], ...]
    start_pos: NDArray[np.int32]
    ends: NDArray[np.int64]
    rows: list[int]
    images: Sequence[tuple[Image, ...]] = ()

    def one(self, i: int) -> PrefillInputs:
        """The same for row i alone."""
        line = slice(i, i + 1)
        return PrefillInputs(
            self.tokens[line, : int(self.ends[i])],
            tuple(table[line] for table in self.page_tables),
            self.start_pos[line],
            self.ends[line],
            self.rows[line],
            self.images[line],
        )


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """tokens int32 [B, 1] (0 on free rows), start_pos int32 [B] (-1 on free rows), and int32 [B, W] for each KV
    cache group.

    Source: tt-metal contract 1.6.
    """

    tokens: NDArray[np.int32]
    start_pos: NDArray[np.int32]
    page_tables: tuple[NDArray[np.int32], ...]


def prefill_inputs(
    states: Sequence[RequestState[Any]],
    counts: Sequence[int],
    page_tables: tuple[NDArray[np.int32], ...],
    alignment: int,
) -> PrefillInputs:
    """Inputs that compute the next counts[i] tokens of states[i].

    alignment: first positions are rounded down to a multiple of it, and the tokens in between computed again:
               adapters of mid-2026
    fail on other values in the untraced path and corrupt silently in the traced one (tt-metal contract 7).
    """
    ends = np.array([s.computed + c for s, c in zip(states, counts, strict=True)], dtype=np.int64)
    tokens = np.zeros((len(states), int(ends.max())), dtype=np.int32)
    for i, (state, end) in enumerate(zip(states, ends.tolist(), strict=True)):
        tokens[i, :end] = state.tokens(0, end)
    start = np.array([s.computed - s.computed % alignment for s in states], dtype=np.int32)
    images = [begun(s.request_id, s.images, end) for s, end in zip(states, ends.tolist(), strict=True)]
    return PrefillInputs(tokens, page_tables, start, ends, [s.row for s in states], images)


def alignment_of(declared: int | None, *, recurrent: bool) -> int:
    """The multiple that first positions of a prefill are rounded down to.

    declared:   the class's `chunked_prefill_token_alignment`; only one finer than a tile is worth something, since
                adapters floor to coarser ones themselves
    recurrent:  the model has layers whose state goes forward only: computing a token twice would corrupt it
    Source: tt-metal contract 1.14 and 7.
    """
    return 1 if recurrent else min(TILE, declared or TILE)


class DecodeBuffers:
    """The inputs of decode steps. Positions advance in place; a submission gets its own slot of a small ring."""

    def __init__(self, capacity: int) -> None:
        self._tokens = [np.zeros((capacity, 1), dtype=np.int32) for _ in range(RING)]
        self._start_pos = [np.full(capacity, -1, dtype=np.int32) for _ in range(RING)]
        # A few plain writes: at a step's pace numpy's own code is cold, and its first use costs ten times as much.
        self._cells = [memoryview(array.data) for array in self._start_pos]
        self._of: list[object] = [None] * RING
        self._slot = 0

    def fill(self, rows: Sequence[int], positions: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """tokens [B, 1], which the device has, and start_pos [B] with these positions at `rows`.

        The same `rows` again, the very object, writes the positions alone.
        """
        self._slot = (self._slot + 1) % RING
        tokens, start_pos = self._tokens[self._slot], self._start_pos[self._slot]
        if self._of[self._slot] is not rows:
            tokens.fill(0)
            start_pos.fill(-1)
            self._of[self._slot] = rows
        cells = self._cells[self._slot]
        for row, position in zip(rows, positions, strict=True):
            cells[row] = position
        return tokens, start_pos
