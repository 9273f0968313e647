"""The synthetic model's paged cache: at every position the digest of the context that ends there."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tt_hostmesh.adapter.compute import KVLayout
from tt_hostmesh.synthetic.digest import FAULT, Digests, contributions

Ints = NDArray[np.int64]


class DigestCache:
    """Reads and writes go through page tables alone, and every read looks at all blocks of the context.

    A block keeps the last digest written to it and that of the block before it when it was begun. So a wrong block in
    any column of a page table, a block that somebody else wrote to, a hole or a wrong position is a fault: the context
    gets another digest, for good, and wrong tokens follow.
    """

    def __init__(self, layout: KVLayout) -> None:
        blocks = layout.lanes * layout.num_blocks
        self.block_size = layout.block_size
        self.faults = 0
        self._digests: Digests = np.zeros((blocks, layout.block_size), dtype=np.uint64)
        self._last: Digests = np.zeros(blocks, dtype=np.uint64)
        self._parent: Digests = np.zeros(blocks, dtype=np.uint64)

    def extend(self, tokens: "NDArray[Any]", start: int, blocks: Ints) -> np.uint64:
        """Compute positions [start, len(tokens)) of one context in `blocks`, int64 [w]. Returns its digest.

        What lies in the block at or after `start` is computed again and counts for nothing.
        """
        end, size = len(tokens), self.block_size
        column, offset = divmod(start, size)
        base = self._before(blocks[None, :], np.array([column]), np.array([offset]))[0]
        positions = np.arange(start, end)
        values = base + np.cumsum(contributions(tokens[start:], positions), dtype=np.uint64)
        self._digests[blocks[positions // size], positions % size] = values
        used = blocks[column : -(-end // size)]
        ends = np.minimum(np.arange(column + 1, column + 1 + len(used)) * size, end) - start - 1
        self._last[used] = values[ends]
        first = self._parent[used[:1]] if offset else np.array([base])
        self._parent[used] = np.concatenate([first, values[ends[:-1]]])
        return values[-1]

    def append(self, tokens: Ints, positions: Ints, blocks: Ints) -> Digests:
        """One more token in each of n contexts, int64 [n]; blocks: int64 [n, w]. Returns their digests."""
        column, offset = positions // self.block_size, positions % self.block_size
        base = self._before(blocks, column, offset)
        mine = blocks[np.arange(len(tokens)), column]
        stale = (offset > 0) & (self._last[mine] != base)
        values = self._faulty(base, stale) + contributions(tokens, positions)
        self._digests[mine, offset] = values
        self._last[mine] = values
        begun = offset == 0
        self._parent[mine[begun]] = base[begun]
        return values

    def _before(self, blocks: Ints, column: Ints, offset: Ints) -> Digests:
        """The digest before each position, and a fault for every block before it that does not follow its neighbour."""
        width = int(column.max()) + 1
        blocks = blocks[:, :width]
        last, parent = self._last[blocks], self._parent[blocks]
        expected = np.concatenate([np.zeros((len(blocks), 1), np.uint64), last[:, :-1]], axis=1)
        started = (column + (offset > 0))[:, None]
        broken = ((parent != expected) & (np.arange(width) < started)).sum(axis=1)
        rows = np.arange(len(blocks))
        inside = self._digests[blocks[rows, column], offset - 1]
        base = np.where(offset > 0, inside, expected[rows, column])
        return self._faulty(base, broken)

    def _faulty(self, digests: Digests, faults: "NDArray[Any]") -> Digests:
        self.faults += int(faults.sum())
        return digests + faults.astype(np.uint64) * FAULT
