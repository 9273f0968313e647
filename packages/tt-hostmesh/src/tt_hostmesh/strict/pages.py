"""Rules on page tables alone: ids in the pool, used part complete, tail clean."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from tt_hostmesh.strict.breach import Where
from tt_hostmesh.strict.values import Bools, Ints


def within(width: int, limits: Ints) -> Bools:
    """[n, width]: which columns lie below each row's limit."""
    columns: Ints = np.arange(width, dtype=np.int64)
    return np.less(columns[None, :], limits[:, None])


def check_ids(where: Where, clause: str, table: Ints, num_blocks: int) -> None:
    """Every cell of `table` [n, W] is a block of the pool. Raises ContractError naming the first that is not."""
    wrong = (table < 0) | (table >= num_blocks)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise where.breach(
            clause, f"page table row {row} column {column} is block {table[row, column]}, the pool has {num_blocks}"
        )


def check_extent(where: Where, clause: str, table: Ints, used: Ints, oldest: Ints, tail: int) -> None:
    """Each row of `table` [n, W] lists `used` [n] blocks, then at most `tail` more, then zeros only. Blocks before
    column `oldest` [n] left the layer's window: they may be missing.

    Block 0 pads: warm-up and padding rows write into it, so no position may live there. Raises ContractError for a
    missing block and for a stale tail.
    """
    inside = within(table.shape[1], used)
    missing: Bools = np.logical_and(np.logical_and(inside, ~within(table.shape[1], oldest)), table == 0)
    if missing.any():
        row, place = np.argwhere(missing)[0]
        raise where.breach(
            clause,
            f"page table row {row} column {place} is 0, the padding block, but row {row} uses {used[row]} blocks",
        )
    stale: Bools = np.logical_and(~inside, table != 0)
    beyond: Bools = np.logical_and(stale, ~within(table.shape[1], used + tail))
    if beyond.any():
        row, place = np.argwhere(beyond)[0]
        raise where.breach(
            clause,
            f"page table row {row} has a stale tail: {stale[row].sum()} block ids after the {used[row]} it uses "
            f"(column {place} is {table[row, place]}); cells beyond a row's blocks are 0",
        )


def check_tails(where: Where, clause: str, pool: Ints, used: Ints) -> None:
    """No block of a tail is used by another row of the call. pool: pool ids [n, W], 0 where there is no block."""
    inside = within(pool.shape[1], used)
    tails = pool[~inside]
    tails = tails[tails != 0]
    if not len(tails):
        return
    values, counts = np.unique(np.concatenate([np.unique(pool[inside]), tails]), return_counts=True)
    shared = np.intersect1d(values[counts > 1], tails)
    if len(shared):
        row = int(np.argwhere(np.logical_and(~inside, pool == shared[0]))[0][0])
        raise where.breach(
            clause, f"page table row {row} lists beyond its end a block that another row of the call has"
        )


def check_apart(where: Where, clause: str, tables: Sequence[Ints], buffers: Sequence[int]) -> None:
    """Layers that lie in one buffer have different blocks: none is in the tables, [n, W] each, of two of them.

    A layer of another buffer may have the same table. Raises ContractError.
    """
    for i, j in combinations(range(len(tables)), 2):
        if buffers[i] == buffers[j]:
            common = np.intersect1d(tables[i], tables[j])
            common = common[common != 0]
            where.require(
                not len(common),
                clause,
                f"layers {i} and {j} share a buffer, and block {common[:1].tolist()} stands in the page tables of both",
            )
