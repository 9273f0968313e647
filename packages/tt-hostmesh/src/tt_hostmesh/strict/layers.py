"""What strict mode knows of each layer's part of the cache."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tt_hostmesh.strict.ledger import ROOT, Ledger
from tt_hostmesh.strict.slots import EMPTY, SlotBook
from tt_hostmesh.strict.values import Ints


@dataclass(frozen=True, slots=True, eq=False)
class LayerRecord:
    """One layer that has a page table of its own; a model with one page table has one record for all its layers.

    ledger: of the buffer that the layer lies in;  book: the layer's sequences
    window: positions that the layer sees, its own included; None: all
    root:   chain value of an empty sequence in this layer
    beside: the other layers in the same buffer
    """

    ledger: Ledger
    book: SlotBook
    window: int | None = None
    root: int = ROOT
    beside: "list[LayerRecord]" = field(default_factory=list["LayerRecord"])

    def oldest(self, position: int) -> int:
        """The column of the first block that is seen from `position`."""
        return 0 if self.window is None else max(position + 1 - self.window, 0) // self.ledger.block_size

    def oldest_of(self, positions: Ints) -> Ints:
        """The same for each of `positions` [n]."""
        return np.array([self.oldest(position) for position in positions.tolist()], dtype=np.int64)

    def holder(self, block: int, candidates: set[int]) -> int:
        """A slot whose sequence lives in `block` as it is now and still sees it; -1 if there is none.

        In this layer one of `candidates` counts; in layers of the same buffer every slot that is known to be alive.
        """
        found = self._holder(block, candidates)
        for other in self.beside:
            if found == EMPTY and other.book.releases_seen:
                found = other._holder(block, set(range(other.book.slots)))
        return found

    def _holder(self, block: int, candidates: set[int]) -> int:
        book = self.book
        if not candidates:
            return EMPTY
        held = (book.blocks == block) & (book.generations == self.ledger.generation[block])
        for slot, column in np.argwhere(held):
            alive = int(slot) in candidates and book.next[slot] != EMPTY
            if alive and column >= self.oldest(int(book.next[slot])):
                return int(slot)
        return EMPTY


def records(
    slots: int, pool: int, block_size: int, buffers: Sequence[int], windows: Sequence[int | None]
) -> list[LayerRecord]:
    """A record a layer. pool: blocks of all lanes; buffers: where each layer lies."""
    ledgers = {buffer: Ledger(pool, block_size) for buffer in sorted(set(buffers))}
    found = [
        LayerRecord(ledgers[buffer], SlotBook(slots), window, ROOT + layer)
        for layer, (buffer, window) in enumerate(zip(buffers, windows, strict=True))
    ]
    for record in found:
        record.beside.extend(other for other in found if other.ledger is record.ledger and other is not record)
    return found
