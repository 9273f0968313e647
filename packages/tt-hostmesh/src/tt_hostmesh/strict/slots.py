"""Which sequence each state slot holds."""

from dataclasses import dataclass, field

import numpy as np

from tt_hostmesh.strict.ledger import Ledger
from tt_hostmesh.strict.values import Ints

EMPTY = -1


@dataclass(slots=True)
class SlotBook:
    """By slot: `next`, the position that comes next (-1 = empty slot); `blocks` and `generations`, [slots, width],
    the blocks of positions before `next` and how they were counted when this sequence last touched them.

    `releases_seen`: the caller uses release_request, so a slot that was not released still has its request.
    """

    slots: int
    width: int = 0
    releases_seen: bool = False
    next: Ints = field(init=False)
    blocks: Ints = field(init=False)
    generations: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.next = np.full(self.slots, EMPTY, dtype=np.int64)
        self.resize(self.width)

    def resize(self, width: int) -> None:
        """Make room for page tables of `width` columns; only while all slots are empty."""
        self.width = width
        self.blocks = np.zeros((self.slots, width), dtype=np.int64)
        self.generations = np.zeros((self.slots, width), dtype=np.int64)

    def enter(self, slot: int, following: int, blocks: Ints, ledger: Ledger) -> None:
        """The slot holds a sequence up to `following` in `blocks`, pool ids [m]."""
        self.next[slot] = following
        self.blocks[slot] = 0
        self.blocks[slot, : len(blocks)] = blocks
        self.generations[slot, : len(blocks)] = ledger.generation[blocks]

    def leave(self, slot: int) -> None:
        self.next[slot] = EMPTY

    def permute(self, remap: Ints) -> None:
        """Slot i takes what slot remap[i] holds."""
        self.next, self.blocks, self.generations = self.next[remap], self.blocks[remap], self.generations[remap]
