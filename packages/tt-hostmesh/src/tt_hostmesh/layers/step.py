"""The rows that are computed together, and what each layer sees of what was computed before."""

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.layers.cache import LayeredCache

ALONE = -1


class Step:
    """n rows of q tokens: one row of a prefill (n = 1), or the rows of a decode (q = 1).

    positions: int64 [n, q], ascending; blocks: int64 [layers, n, w], pool-wide ids
    groups:    int64 [t], of one row: for each position from 0 on the group whose positions see one another, ALONE for
               none
    """

    def __init__(self, cache: LayeredCache, positions: Tensor, blocks: Tensor, groups: Tensor | None = None) -> None:
        size = cache.layout.block_size
        self.positions = positions
        self._cache = cache
        self._blocks = blocks[..., : -(-(int(positions.max()) + 1) // size)]
        self._groups = groups
        self._masks: dict[int | None, Tensor] = {}

    @cached_property
    def _columns(self) -> Tensor:
        return self.positions // self._cache.layout.block_size

    def exchange(self, layer: int, entries: Tensor) -> Tensor:
        """Write what a layer keeps of this step, float32 [n, q, width], and read all that its rows can see: float32
        [n, c, width], c from position 0 on."""
        size = self._cache.layout.block_size
        blocks = self._blocks[layer]
        slots = blocks.gather(1, self._columns) * size + self.positions % size
        self._cache.write(layer, slots.reshape(-1), entries.flatten(0, 1))
        return self._cache.read(layer, blocks)

    def mask(self, window: int | None) -> Tensor:
        """float32 [n, 1, q, c]: 0 where a position is seen, -inf elsewhere. window: positions seen, with its own."""
        if window not in self._masks:
            at = self.positions[..., None]
            keys = torch.arange(self._blocks.shape[-1] * self._cache.layout.block_size)
            seen = (keys <= at) | self._together(len(keys))
            seen = seen if window is None else seen & (keys > at - window)
            self._masks[window] = torch.where(seen, 0.0, float("-inf"))[:, None]
        return self._masks[window]

    def _together(self, keys: int) -> Tensor:
        """bool [1, q, c]: whether a key is of its position's group."""
        if self._groups is None:
            return torch.zeros(1, 1, 1, dtype=torch.bool)
        groups = F.pad(self._groups, (0, keys - len(self._groups)), value=ALONE)
        mine = groups[self.positions][..., None]
        return (groups == mine) & (mine != ALONE)
