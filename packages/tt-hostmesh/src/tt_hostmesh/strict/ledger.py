"""What each block of the cache holds: the record against which page tables are judged."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tt_hostmesh.strict.values import Ints

ROOT = 1
"""Chain value in front of a sequence's first block; layers that share a buffer have different ones."""
UNKNOWN = 0
"""Chain value of a block that is not full, or that a failed step left unknown."""
NOBODY = -1


@dataclass(slots=True)
class Ledger:
    """By block of the common pool; row 0 of a lane is its padding block and never used.

    generation: how often the block was begun anew; filled: positions written since; writer: the slot that began it.
    tokens [blocks, block_size]: ids behind the written positions, -1 unknown; parent, chain: hash of the sequence
    before and up to this block. A block's content is known by its chain: keys and values depend on all tokens before.

    Counts are kept by the caller's thread as calls are accepted. Tokens that the device sampled are entered by the
    device thread (`record_decode`); the caller's thread looks at tokens and chains only when the queue is empty.
    """

    num_blocks: int
    block_size: int
    generation: Ints = field(init=False)
    filled: Ints = field(init=False)
    writer: Ints = field(init=False)
    tokens: Ints = field(init=False)
    parent: list[int] = field(init=False)
    chain: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.generation = np.zeros(self.num_blocks, dtype=np.int64)
        self.filled = np.zeros(self.num_blocks, dtype=np.int64)
        self.writer = np.full(self.num_blocks, NOBODY, dtype=np.int64)
        self.tokens = np.full((self.num_blocks, self.block_size), -1, dtype=np.int64)
        self.parent = [UNKNOWN] * self.num_blocks
        self.chain = [UNKNOWN] * self.num_blocks

    def begin(self, blocks: Ints | int, writers: Ints | int) -> None:
        """The blocks get a new first position: whatever they held is gone."""
        self.generation[blocks] += 1
        self.filled[blocks] = 0
        self.writer[blocks] = writers

    def holds(self, block: int, low: int, tokens: Ints, parent: int) -> bool:
        """Whether the block already has `tokens` from offset `low` on, behind the sequence `parent`."""
        high = low + len(tokens)
        return (
            bool(self.filled[block] >= high)
            and (self.parent[block] == parent or UNKNOWN in (parent, self.parent[block]))
            and _same(self.tokens[block, low:high], tokens)
        )

    def enter(self, block: int, low: int, tokens: Ints, parent: int) -> None:
        """Write `tokens` at offset `low`; positions beyond are gone."""
        high = low + len(tokens)
        self.tokens[block, low:high] = tokens
        self.filled[block] = high
        self.parent[block] = parent
        self.chain[block] = self.link(parent, self.tokens[block]) if high == self.block_size else UNKNOWN

    def record_decode(self, blocks: Ints, offsets: Ints, tokens: Ints, before: Ints, root: int = ROOT) -> None:
        """Enter one token a row, in the device thread. `before`: the block ahead of each in its sequence, -1 none."""
        self.tokens[blocks, offsets] = tokens
        for i in np.flatnonzero(offsets == 0):
            self.parent[blocks[i]] = root if before[i] < 0 else self.chain[before[i]]
            self.chain[blocks[i]] = UNKNOWN
        for i in np.flatnonzero(offsets == self.block_size - 1):
            self.chain[blocks[i]] = self.link(self.parent[blocks[i]], self.tokens[blocks[i]])

    @staticmethod
    def link(parent: int, tokens: NDArray[np.int64]) -> int:
        """Chain value of a full block behind `parent`; UNKNOWN if anything is not known."""
        if parent == UNKNOWN or (tokens < 0).any():
            return UNKNOWN
        return hash((parent, tokens.tobytes())) or ROOT


def _same(known: Ints, tokens: Ints) -> bool:
    return bool(((known == tokens) | (known < 0)).all())
