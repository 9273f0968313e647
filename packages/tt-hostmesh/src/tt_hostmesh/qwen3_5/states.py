"""The recurrent state of every sequence, by slot."""

import torch
from torch import Tensor

from tt_hostmesh.qwen3_5.config import Qwen35Config


class StateSlots:
    """conv: float32 [layers, slots, conv_size, kernel - 1], the inputs that the convolution looks back at; memory:
    float32 [layers, slots, value_heads, key_dim, value_dim].

    Nothing here is set to zero but by `begin`: a slot keeps what its last sequence left, as a device does.
    """

    def __init__(self, config: Qwen35Config, slots: int) -> None:
        layers = config.linear_layers
        self.conv = torch.zeros(layers, slots, config.conv_size, config.kernel - 1)
        self.memory = torch.zeros(layers, slots, config.value_heads, config.key_dim, config.value_dim)

    def begin(self, slot: int) -> None:
        """A sequence starts at position 0 in this slot."""
        self.conv[:, slot] = 0
        self.memory[:, slot] = 0

    def permute(self, remap: Tensor) -> None:
        """Slot i takes the state now in slot remap[i], int64 [slots]."""
        self.conv = self.conv[:, remap]
        self.memory = self.memory[:, remap]
