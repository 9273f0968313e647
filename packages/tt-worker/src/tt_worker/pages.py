"""Page tables: which KV blocks each row owns, one table per KV cache group."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tt_worker.inputs import RING


class PageTableError(RuntimeError):
    """Block ids that do not fit the table or the pool; accepted silently by real adapters, so checked here."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """skipped: rows that are 0 in it, int64."""

    version: int
    rows: tuple[int, ...]
    skipped: NDArray[np.int64]
    table: NDArray[np.int32]


class PageTable:
    """int32 [rows, width] block ids, 0 beyond a row's blocks.

    `version` changes with every change of content, so that a submission knows whether the device's copy is stale.
    Sources: tt-metal contract 1.5, 1.6 and 7 (no adapter checks width or range).
    """

    def __init__(self, rows: int, width: int, num_blocks: int) -> None:
        self.table: NDArray[np.int32] = np.zeros((rows, width), dtype=np.int32)
        self.length: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        self.num_blocks = num_blocks
        self.version = 0
        self._snapshot: _Snapshot | None = None
        self._copies = deque(np.zeros_like(self.table) for _ in range(RING))

    @property
    def width(self) -> int:
        return self.table.shape[1]

    def replace(self, row: int, block_ids: Sequence[int]) -> None:
        """The row's blocks are exactly these. Whatever a former tenant left beyond them is cleared."""
        self._check(row, 0, block_ids)
        count = len(block_ids)
        self.table[row, :count] = block_ids
        self.table[row, count : int(self.length[row])] = 0
        self.length[row] = count
        self.version += 1

    def append(self, row: int, block_ids: Sequence[int]) -> None:
        """The row got more blocks."""
        if not block_ids:
            return
        start = int(self.length[row])
        self._check(row, start, block_ids)
        self.table[row, start : start + len(block_ids)] = block_ids
        self.length[row] = start + len(block_ids)
        self.version += 1

    def clear(self, row: int) -> None:
        """The row has no blocks."""
        if self.length[row]:
            self.table[row, : int(self.length[row])] = 0
            self.length[row] = 0
            self.version += 1

    def forget(self, row: int, blocks: int) -> None:
        """The row's first `blocks` blocks left its sliding window: the pool may give them to somebody else."""
        count = min(blocks, int(self.length[row]))
        if self.table[row, :count].any():
            self.table[row, :count] = 0
            self.version += 1

    def snapshot(self, rows: Sequence[int]) -> NDArray[np.int32]:
        """The table as of now for a step over `rows`; every other row is 0, also one that has a tenant and is skipped.

        The device may read it later: it stays as it is until RING more were taken. Copied only when the table or the
        rows changed.
        """
        asked, last = tuple(rows), self._snapshot
        if last is not None and last.version == self.version and last.rows == asked:
            return last.table
        skipped = last.skipped if last is not None and last.rows == asked else _without(len(self.table), asked)
        self._copies.rotate()
        copy = self._copies[0]
        np.copyto(copy, self.table)
        if len(skipped):
            copy[skipped] = 0
        self._snapshot = _Snapshot(self.version, asked, skipped, copy)
        return copy

    def packed(self, rows: Sequence[int]) -> NDArray[np.int32]:
        """int32 [len(rows), width], a copy: row i belongs to rows[i]."""
        return self.table[list(rows)]

    def _check(self, row: int, start: int, block_ids: Sequence[int]) -> None:
        if start + len(block_ids) > self.width:
            raise PageTableError(
                f"row {row} would own {start + len(block_ids)} blocks: a request may own {self.width} "
                "(max_model_len / block_size)"
            )
        if block_ids and not (min(block_ids) >= 0 and max(block_ids) < self.num_blocks):
            raise PageTableError(f"row {row} got block ids outside the pool of {self.num_blocks}: {list(block_ids)}")


def _without(count: int, rows: Sequence[int]) -> NDArray[np.int64]:
    """The rows below `count` that are not among `rows`."""
    left = np.ones(count, dtype=np.bool_)
    left[list(rows)] = False
    return np.flatnonzero(left)


class PageTables:
    """The tables of all KV cache groups. Every model has one; hybrid attention has one for each kind of layer.

    windows: for each group, tokens that its layers look back at; None: all
    """

    def __init__(self, tables: Sequence[PageTable], windows: Sequence[int | None] = (), block_size: int = 1) -> None:
        self._tables = tuple(tables)
        self._sliding = [(t, w) for t, w in zip(self._tables, windows, strict=False) if w]
        self._block_size = block_size

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple([table.version for table in self._tables])

    @property
    def width(self) -> int:
        """Blocks that one request may own."""
        return self._tables[0].width

    @property
    def slide(self) -> bool:
        """Whether a group has a sliding window, so that `advance` does something."""
        return bool(self._sliding)

    def replace(self, row: int, block_ids: Sequence[Sequence[int]]) -> None:
        """The row's blocks are exactly these, group by group."""
        for table, ids in zip(self._tables, block_ids, strict=True):
            table.replace(row, ids)

    def append(self, row: int, block_ids: Sequence[Sequence[int]]) -> None:
        """The row got more blocks, group by group."""
        for table, ids in zip(self._tables, block_ids, strict=True):
            table.append(row, ids)

    def clear(self, row: int) -> None:
        for table in self._tables:
            table.clear(row)

    def hold(self, row: int, position: int) -> bool:
        """Whether the row owns the blocks that `position` lies in."""
        return all(int(table.length[row]) * self._block_size > position for table in self._tables)

    def advance(self, row: int, position: int) -> None:
        """The row computes from `position` on: what lies wholly before a sliding window of it is forgotten."""
        for table, window in self._sliding:
            table.forget(row, max(0, position + 1 - window) // self._block_size)

    def decode(self, rows: Sequence[int]) -> tuple[NDArray[np.int32], ...]:
        """One int32 [B, W] a group, by row; see PageTable.snapshot."""
        return tuple([table.snapshot(rows) for table in self._tables])

    def prefill(self, rows: Sequence[int]) -> tuple[NDArray[np.int32], ...]:
        """One int32 [n, W] a group, line i for rows[i]."""
        return tuple(table.packed(rows) for table in self._tables)
