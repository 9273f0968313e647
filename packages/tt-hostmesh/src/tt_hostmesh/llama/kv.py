"""The paged key/value cache."""

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import KVLayout


class PagedCache:
    """Keys and values of all layers and lanes, addressed by block.

    storage: float32 [layers, lanes * num_blocks * block_size, 2 * kv_size], a position's key beside its value, so that
    a block is one piece of memory for both. Lane l owns the blocks from l * num_blocks on; callers pass pool-wide ids.
    """

    def __init__(self, layout: KVLayout, num_layers: int, num_kv_heads: int, head_dim: int) -> None:
        self.layout = layout
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        positions = layout.lanes * layout.num_blocks * layout.block_size
        self._storage = torch.zeros(num_layers, positions, 2 * num_kv_heads * head_dim)
        self._blocks = self._storage.view(num_layers, positions // layout.block_size, -1)
        self._gathered = torch.empty(0, self._blocks.shape[-1])

    def write(self, layer: int, slots: Tensor, key_value: Tensor) -> None:
        """Store `key_value`, float32 [n, 2 * kv_size], at the positions `slots`, int64 [n] (block * size + offset)."""
        self._storage[layer].index_copy_(0, slots, key_value)

    def gather(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of `blocks`, int64 [n, m], each as [n, kv_heads, m * block_size, head_dim].

        They are views of one scratch buffer and valid until the next gather: a fresh allocation of this size a layer
        costs more than the copy.
        """
        rows, count = blocks.shape
        picked = self._scratch(rows * count)
        torch.index_select(self._blocks[layer], 0, blocks.reshape(-1), out=picked)
        picked = picked.view(rows, count * self.layout.block_size, 2, self.num_kv_heads, self.head_dim)
        return picked[:, :, 0].transpose(1, 2), picked[:, :, 1].transpose(1, 2)

    def _scratch(self, count: int) -> Tensor:
        """float32 [count, floats of a block]; not initialised."""
        width = self._blocks.shape[-1]
        if len(self._gathered) < count:
            self._gathered = torch.empty(count, width)
        return self._gathered[:count]

    def slots(self, blocks: Tensor, positions: Tensor) -> Tensor:
        """int64 [n]: where each of `positions` [n] lies, given the blocks [n] that hold them."""
        return blocks * self.layout.block_size + positions % self.layout.block_size
