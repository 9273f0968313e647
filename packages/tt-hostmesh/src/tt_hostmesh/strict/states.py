"""A prefill of a model with state by slot: it goes on from its own sequence's state, or from none."""

from tt_hostmesh.strict.breach import Where
from tt_hostmesh.strict.ledger import Ledger
from tt_hostmesh.strict.prefill import PrefillView
from tt_hostmesh.strict.slots import EMPTY, SlotBook

CLAUSE = "1.9"


def check_states(where: Where, book: SlotBook, ledger: Ledger, view: PrefillView) -> None:
    """A row that starts beyond 0 starts where its slot stands, behind the same blocks as they were written.

    Raises ContractError. Decode steps need no rule of their own: every row stands where its slot's sequence does.
    """
    for row, slot in enumerate(view.slots):
        start, reached = view.starts[row], int(book.next[slot])
        if start == 0:
            continue
        where.require(
            reached != EMPTY, CLAUSE, f"row {row} starts at {start}, and slot {slot} holds no sequence's state"
        )
        behind = -(-min(start, reached) // ledger.block_size)
        blocks = view.pool[row, :behind]
        same = (blocks == book.blocks[slot, :behind]) & (ledger.generation[blocks] == book.generations[slot, :behind])
        where.require(
            same.all(), CLAUSE, f"row {row} starts at {start}, but slot {slot} holds the state of another sequence"
        )
        where.require(
            start == reached,
            CLAUSE,
            f"row {row} starts at {start}, but the state in slot {slot} stands at {reached}: it goes forward only",
        )
