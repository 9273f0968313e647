"""The vision tower: patches of an image to embeddings of its placeholder tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.adapter.images import Image
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.rope import rotate
from tt_hostmesh.qwen2_5_vl.config import VisionConfig
from tt_hostmesh.qwen2_5_vl.windows import patch_places, windows

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """One layer. qkv: hidden -> 3 hidden; gate_up: hidden -> 2 intermediate."""

    norm1: Tensor
    qkv: Linear
    proj: Linear
    norm2: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class TowerWeights:
    """patch: values of a patch -> hidden; merger: merge^2 hidden -> the same -> out_hidden_size."""

    patch: Linear
    blocks: tuple[BlockWeights, ...]
    merger_norm: Tensor
    merger_first: Linear
    merger_second: Linear


class VisionTower:
    """Float32, one image at a time: images do not see one another."""

    def __init__(self, config: VisionConfig, weights: TowerWeights) -> None:
        self._config = config
        self._weights = weights
        half = config.head_dim // 2
        exponent = torch.arange(0, half, 2, dtype=torch.int64).float() / half
        self._frequencies = 1.0 / (config.rope_theta**exponent)

    def embed(self, image: Image) -> Tensor:
        """float32 [tokens, out_hidden_size]."""
        config = self._config
        unit = config.merge**2
        split = windows(image.grid, config.merge, config.window)
        hidden = _regroup(self._weights.patch(image.pixels), split.order, unit)
        rotation = _regroup(self._rotations(image), split.order, unit)
        frame = image.grid[1] * image.grid[2]
        whole = [frame] * image.grid[0]
        windowed = [size * unit for size in split.sizes]
        for index, block in enumerate(self._weights.blocks):
            sizes = whole if index in config.full_layers else windowed
            hidden = self._block(block, hidden, rotation, sizes)
        return self._merge(hidden)[split.order.argsort()]

    def _rotations(self, image: Image) -> Tensor:
        """complex64 [patches, head_dim / 2]: the first half turns with a patch's line, the second with its column."""
        places = patch_places(image.grid, self._config.merge).float()
        angles = (places[:, :, None] * self._frequencies).flatten(1)
        return torch.complex(angles.cos(), angles.sin())

    def _block(self, block: BlockWeights, hidden: Tensor, rotation: Tensor, sizes: Sequence[int]) -> Tensor:
        width = self._config.hidden_size
        qkv = block.qkv(F.rms_norm(hidden, (width,), block.norm1, EPS))
        rotate(qkv[:, : 2 * width].view(len(qkv), -1, self._config.head_dim), rotation)
        hidden = hidden + block.proj(torch.cat([self._attend(part) for part in torch.split(qkv, list(sizes))]))
        gate, up = block.gate_up(F.rms_norm(hidden, (width,), block.norm2, EPS)).chunk(2, -1)
        return hidden + block.down(F.silu(gate) * up)

    def _attend(self, qkv: Tensor) -> Tensor:
        """Patches of one window, each seeing all of them."""
        config = self._config
        query, key, value = qkv.view(1, len(qkv), 3, config.num_heads, config.head_dim).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(len(qkv), -1)

    def _merge(self, hidden: Tensor) -> Tensor:
        weights = self._weights
        normed = F.rms_norm(hidden, (self._config.hidden_size,), weights.merger_norm, EPS)
        joined = normed.reshape(-1, self._config.hidden_size * self._config.merge**2)
        return weights.merger_second(F.gelu(weights.merger_first(joined)))


def _regroup(values: Tensor, order: Tensor, unit: int) -> Tensor:
    """`values` [patches, n] with the groups of `unit` patches in another order."""
    return values.view(len(order), unit, -1)[order].view(len(values), -1)
