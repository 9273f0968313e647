"""The paged cache of a model whose layers have page tables of their own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import KVLayout


class LayeredCache:
    """What a model keeps of each position, layer by layer, addressed by block.

    buffers: for each layer, the buffer that it lies in; layers that share one have blocks of their own in it
    widths:  for each layer, floats of one position; equal for layers of one buffer, or ValueError
    """

    def __init__(self, layout: KVLayout, buffers: Sequence[int], widths: Sequence[int]) -> None:
        self.layout = layout
        self._buffers = tuple(buffers)
        found: dict[int, Tensor] = {}
        for buffer, width in zip(buffers, widths, strict=True):
            known = found.get(buffer)
            if known is None:
                found[buffer] = torch.zeros(layout.lanes * layout.num_blocks, layout.block_size, width)
            elif known.shape[-1] != width:
                raise ValueError(f"buffer {buffer} is shared by layers of {known.shape[-1]} and {width} floats")
        self._storage = found

    def write(self, layer: int, slots: Tensor, entries: Tensor) -> None:
        """Store `entries`, float32 [t, width], at the positions `slots`, int64 [t] (block * size + offset)."""
        self._storage[self._buffers[layer]].flatten(0, 1).index_copy_(0, slots, entries)

    def read(self, layer: int, blocks: Tensor) -> Tensor:
        """The entries of `blocks`, int64 [n, m], as float32 [n, m * block_size, width]."""
        return self._storage[self._buffers[layer]][blocks].flatten(1, 2)
