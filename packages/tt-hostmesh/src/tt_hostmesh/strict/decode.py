"""A decode step against what the cache holds (contract 1.6)."""

from dataclasses import dataclass

import numpy as np

from tt_hostmesh.strict.breach import Limits, Where
from tt_hostmesh.strict.layers import LayerRecord
from tt_hostmesh.strict.ledger import Ledger
from tt_hostmesh.strict.pages import check_extent, check_ids, check_tails, within
from tt_hostmesh.strict.slots import EMPTY, SlotBook
from tt_hostmesh.strict.values import Bools, Ints

CLAUSE = "1.6"


@dataclass(frozen=True, slots=True)
class DecodeWrites:
    """What an accepted step writes. rows, blocks (pool ids), offsets, before (block ahead in the row, -1 none): [n]."""

    rows: Ints
    positions: Ints
    blocks: Ints
    offsets: Ints
    before: Ints


def check_padding(where: Where, tokens: Ints, positions: Ints, table: Ints) -> None:
    """Rows without a request have token 0, start_pos -1 and an empty page table. Raises ContractError."""
    odd = np.flatnonzero(positions < -1)
    where.require(not len(odd), CLAUSE, f"padding rows have start_pos -1, row {_first(odd)} has another negative one")
    padding = positions == -1
    odd = np.flatnonzero(padding & (tokens != 0))
    where.require(not len(odd), CLAUSE, f"padding rows have token 0, row {_first(odd)} has start_pos -1 and a token")
    odd = np.flatnonzero(padding & (table != 0).any(axis=(0, 2)))
    where.require(not len(odd), CLAUSE, f"padding rows have an empty page table, row {_first(odd)} lists blocks")


def check_step(where: Where, limits: Limits, record: LayerRecord, positions: Ints, table: Ints) -> DecodeWrites:
    """One token at `positions` [B] (-1 = no row) through the page table [B, W] the device uses, lane-local ids.

    Raises ContractError. Changes nothing; `enter_step` does, once the step is accepted.
    """
    ledger, book = record.ledger, record.book
    rows = np.flatnonzero(positions >= 0)
    at = positions[rows]
    over = rows[at >= limits.max_seq_len]
    where.require(not len(over), CLAUSE, f"row {_first(over)} is at or beyond max_seq_len {limits.max_seq_len}")
    _check_progress(where, book, rows, at)
    check_ids(where, CLAUSE, table, limits.num_blocks)
    used = np.zeros(len(table), dtype=np.int64)
    used[rows] = at // ledger.block_size + 1
    wide = rows[used[rows] > table.shape[1]]
    where.require(not len(wide), CLAUSE, f"row {_first(wide)} needs more columns than page_table's {table.shape[1]}")
    width = int(used.max(initial=0)) + limits.tail  # nothing but the tail rule looks further
    oldest = np.zeros(len(table), dtype=np.int64)
    oldest[rows] = record.oldest_of(at)
    check_extent(where, CLAUSE, table, used, oldest, limits.tail)
    lanes = np.arange(len(table)) // limits.placement.rows_per_lane
    near = table[:, :width]
    pool = np.where(near > 0, near + lanes[:, None] * limits.num_blocks, 0)
    check_tails(where, CLAUSE, pool, used)
    _check_history(where, record, rows, at, pool)
    return _writes(where, ledger, rows, at, pool, used)


def enter_step(record: LayerRecord, writes: DecodeWrites) -> None:
    """Count an accepted step."""
    ledger, book = record.ledger, record.book
    first = writes.offsets == 0
    ledger.begin(writes.blocks[first], writes.rows[first])
    ledger.filled[writes.blocks] = writes.offsets + 1
    column = writes.positions // ledger.block_size
    book.blocks[writes.rows, column] = writes.blocks
    book.generations[writes.rows, column] = ledger.generation[writes.blocks]
    book.next[writes.rows] = writes.positions + 1


def _check_progress(where: Where, book: SlotBook, rows: Ints, at: Ints) -> None:
    """Each row stands where its slot's sequence does."""
    following = book.next[rows]
    for row, position, expected in zip(rows, at, following, strict=True):
        if position == expected:
            continue
        if expected == EMPTY:
            raise where.breach(CLAUSE, f"row {row} decodes at {position}, but no prefill ever filled slot {row}")
        if position > expected:
            raise where.breach(
                CLAUSE, f"row {row} decodes at {position}, but slot {row} is written up to {expected - 1}: a hole"
            )
        raise where.breach(
            CLAUSE, f"row {row} decodes at {position}, which a step before has computed: slot {row} is at {expected}"
        )


def _check_history(where: Where, record: LayerRecord, rows: Ints, at: Ints, pool: Ints) -> None:
    """The blocks of earlier positions that are still seen are the same as before, and nobody began them anew."""
    ledger, book = record.ledger, record.book
    width = pool.shape[1]
    inside = np.logical_and(within(width, -(-at // ledger.block_size)), ~within(width, record.oldest_of(at)))
    mine = pool[rows]
    moved: Bools = np.logical_and(inside, mine != book.blocks[rows][:, : pool.shape[1]])
    if moved.any():
        i, column = np.argwhere(moved)[0]
        raise where.breach(
            CLAUSE,
            f"page table row {rows[i]} column {column} is another block than when its position was written: blocks of "
            "a running request do not move",
        )
    lost: Bools = np.logical_and(inside, ledger.generation[mine] != book.generations[rows][:, : pool.shape[1]])
    if lost.any():
        i, column = np.argwhere(lost)[0]
        block = mine[i, column]
        raise where.breach(
            CLAUSE,
            f"block {block} in column {column} of row {rows[i]} was overwritten by slot {ledger.writer[block]}: it "
            "was shared or given away while in use",
        )


def _writes(where: Where, ledger: Ledger, rows: Ints, at: Ints, pool: Ints, used: Ints) -> DecodeWrites:
    """Where each row writes; a block that is written belongs to one row of the call."""
    size = ledger.block_size
    column = at // size
    blocks = pool[rows, column]
    inside = within(pool.shape[1], used)
    owners = np.bincount(pool[inside], minlength=ledger.num_blocks)
    shared = owners[blocks] > 1
    if shared.any():
        i = int(np.flatnonzero(shared)[0])
        raise where.breach(
            CLAUSE,
            f"row {rows[i]} writes position {at[i]} into block {blocks[i]}, which another row of the call uses too: "
            "only full blocks of a common prefix may be shared",
        )
    before = np.where(column > 0, pool[rows, np.maximum(column - 1, 0)], -1)
    return DecodeWrites(rows, at, blocks, at % size, before)


def _first(rows: Ints) -> int | None:
    return int(rows[0]) if len(rows) else None
