"""A prefill call against what the cache holds (contract 1.5)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tt_hostmesh.adapter.arguments import PrefillArguments
from tt_hostmesh.strict.breach import Limits, Where
from tt_hostmesh.strict.layers import LayerRecord
from tt_hostmesh.strict.ledger import Ledger
from tt_hostmesh.strict.pages import check_extent, check_ids, check_tails
from tt_hostmesh.strict.slots import EMPTY, SlotBook
from tt_hostmesh.strict.values import Ints, int32_tensor, int_sequence, token_ids

CLAUSE = "1.5"


@dataclass(frozen=True, slots=True)
class PrefillView:
    """A prefill call in numbers. tokens [n, max_end]; pool [n, W], pool ids; starts, ends, slots by row."""

    tokens: Ints
    pool: Ints
    starts: list[int]
    ends: list[int]
    slots: list[int]


def view_prefill(where: Where, limits: Limits, arguments: PrefillArguments) -> PrefillView:
    """Shapes, dtypes and ranges of the arguments. Raises ContractError."""
    table = int32_tensor(where, CLAUSE, "page_table", arguments.page_table, (None, None))
    rows = len(table)
    where.require(rows > 0, CLAUSE, "the call has no rows")
    where.require(rows <= limits.rows, CLAUSE, f"{rows} rows in a model of max_batch_size {limits.rows}")
    tokens = int32_tensor(where, CLAUSE, "tokens", arguments.tokens, (rows, None))
    ends = int_sequence(where, CLAUSE, "prompt_lens", arguments.prompt_lens, rows)
    starts = [0] * rows
    if arguments.start_pos is not None:
        starts = int_sequence(where, CLAUSE, "start_pos", arguments.start_pos, rows)
    slots = _slots(where, limits, arguments.empty_slots, rows)
    for row in range(rows):
        _check_span(where, limits, row, starts[row], ends[row], tokens.shape[1])
        token_ids(where, CLAUSE, f"tokens row {row}", tokens[row, : ends[row]], limits.vocab_size)
    used = -(-np.array(ends) // limits.block_size)
    where.require(
        used.max() <= table.shape[1],
        CLAUSE,
        f"page_table has {table.shape[1]} columns, a row ends at {max(ends)} and needs {used.max()}",
    )
    return PrefillView(tokens, table, starts, ends, slots)


def layer_view(where: Where, limits: Limits, record: LayerRecord, view: PrefillView) -> PrefillView:
    """`view`, whose `pool` is a layer's page table [n, W] with lane-local ids, with pool ids. Raises ContractError."""
    table, used = view.pool, -(-np.array(view.ends) // limits.block_size)
    check_ids(where, CLAUSE, table, limits.num_blocks)
    check_extent(where, CLAUSE, table, used, record.oldest_of(np.array(view.starts)), limits.tail)
    lanes = np.array([limits.placement.lane_of(slot) for slot in view.slots])[:, None]
    pool = np.where(table > 0, table + lanes * limits.num_blocks, 0)
    check_tails(where, CLAUSE, pool, used)
    return replace(view, pool=pool)


def enter_prefill(where: Where, record: LayerRecord, view: PrefillView) -> None:
    """Row by row, as the device computes them: cached positions hold this row's tokens, writes hurt nobody.

    Raises ContractError. Enters each accepted row into the layer's book and ledger.
    """
    book, ledger = record.book, record.ledger
    for row, slot in enumerate(view.slots):
        start, end = view.starts[row], view.ends[row]
        blocks = view.pool[row, : -(-end // ledger.block_size)]
        _check_slot(where, record, row, view, blocks)
        # a later row's slot may still name its former request
        others = set(view.slots[:row]) | _known_live(book, slot)
        parent = _check_prefix(where, record, row, view, blocks)
        for index in range(start // ledger.block_size, len(blocks)):
            parent = _write(where, record, row, view, index, parent, others)
        book.enter(slot, end, blocks, ledger)


def _slots(where: Where, limits: Limits, value: Any, rows: int) -> list[int]:
    if value is None:
        return list(range(rows))
    slots = int_sequence(where, CLAUSE, "empty_slots", value, rows)
    where.require(len(set(slots)) == rows, CLAUSE, f"empty_slots {slots} names a slot twice")
    where.require(
        all(0 <= slot < limits.rows for slot in slots), CLAUSE, f"empty_slots {slots}: slots are 0..{limits.rows - 1}"
    )
    return slots


def _check_span(where: Where, limits: Limits, row: int, start: int, end: int, width: int) -> None:
    where.require(
        0 <= start < end, CLAUSE, f"row {row} has start_pos {start} and prompt_lens {end}: 0 <= start < end is needed"
    )
    where.require(end <= limits.max_seq_len, CLAUSE, f"row {row} ends at {end}, max_seq_len is {limits.max_seq_len}")
    where.require(end <= width, CLAUSE, f"tokens is {width} wide, row {row} ends at {end}")


def _check_slot(where: Where, record: LayerRecord, row: int, view: PrefillView, blocks: Ints) -> None:
    """A slot whose request was not released may only be continued."""
    book, ledger = record.book, record.ledger
    slot = view.slots[row]
    reached = int(book.next[slot])
    if not book.releases_seen or reached == EMPTY:
        return
    covered = -(-reached // ledger.block_size)
    seen = slice(record.oldest(view.starts[row]), covered)
    same = covered <= len(blocks) and bool((book.blocks[slot, seen] == blocks[seen]).all())
    if not (same and view.starts[row] <= reached < view.ends[row]):
        raise where.breach(
            "1.9", f"row {row} is a new request in slot {slot}, whose request was not given to release_request"
        )


def _known_live(book: SlotBook, slot: int) -> set[int]:
    """Slots that certainly have a request; without release_request nobody can tell."""
    if not book.releases_seen:
        return set()
    return {int(other) for other in np.flatnonzero(book.next != EMPTY) if other != slot}


def _check_prefix(where: Where, record: LayerRecord, row: int, view: PrefillView, blocks: Ints) -> int:
    """Positions before start_pos that are seen are written, with this row's tokens. Returns the chain value of the full
    blocks."""
    book, ledger = record.book, record.ledger
    size, start = ledger.block_size, view.starts[row]
    parent, oldest = record.root, record.oldest(start)
    for index in range(-(-start // size)):
        low, high = index * size, min((index + 1) * size, start)
        tokens, block = view.tokens[row, low:high], int(blocks[index])
        if index < oldest:
            parent = ledger.link(parent, tokens)
            continue
        where.require(
            ledger.filled[block] >= high - low,
            CLAUSE,
            f"row {row} starts at {start}, but position {low + int(ledger.filled[block])} was never written "
            f"(block {block} in column {index})",
        )
        where.require(
            ledger.holds(block, 0, tokens, parent),
            CLAUSE,
            f"row {row} starts at {start} behind a cached prefix, but block {block} in column {index} holds other "
            "tokens than the row's",
        )
        if high - low == size:
            parent = ledger.chain[block]
        elif not _continues(book, ledger, view.slots[row], index, block):
            _check_rewrite(where, ledger, row, view, index, block, parent)
    return parent


def _continues(book: SlotBook, ledger: Ledger, slot: int, index: int, block: int) -> bool:
    """Whether `block` is where the slot's own sequence stands."""
    return bool(
        book.next[slot] != EMPTY
        and book.blocks[slot, index] == block
        and book.generations[slot, index] == ledger.generation[block]
    )


def _check_rewrite(
    where: Where, ledger: Ledger, row: int, view: PrefillView, index: int, block: int, parent: int
) -> None:
    """Starting inside a block of somebody else is allowed only to compute again what it holds."""
    low, high = index * ledger.block_size, min((index + 1) * ledger.block_size, view.ends[row])
    if high % ledger.block_size or not ledger.holds(block, 0, view.tokens[row, low:high], parent):
        raise where.breach(
            CLAUSE,
            f"row {row} starts at {view.starts[row]}, inside block {block} that slot {ledger.writer[block]} wrote: a "
            "cached prefix ends at a full block",
        )


def _write(
    where: Where,
    record: LayerRecord,
    row: int,
    view: PrefillView,
    index: int,
    parent: int,
    others: set[int],
) -> int:
    """Enter the row's tokens of one block. Returns the chain value behind it."""
    ledger = record.ledger
    size, slot = ledger.block_size, view.slots[row]
    low = max(view.starts[row], index * size)
    high = min((index + 1) * size, view.ends[row])
    block, tokens = int(view.pool[row, index]), view.tokens[row, low:high]
    if high % size == 0 and ledger.holds(block, low % size, tokens, parent):
        return ledger.chain[block]  # computed again, as it is: harmless to whoever shares it
    holder = record.holder(block, others)
    if holder != EMPTY:
        raise where.breach(
            CLAUSE, f"row {row} writes positions from {low} on into block {block}, which slot {holder} still uses"
        )
    if low % size == 0:
        ledger.begin(block, slot)
    ledger.enter(block, low % size, tokens, parent)
    return ledger.chain[block]
