"""The vision tower: patches of an image to embeddings of its tokens, and to what these get behind the first layers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.adapter.images import Grid, Image
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.rope import rotate
from tt_hostmesh.qwen2_5_vl.windows import patch_places
from tt_hostmesh.qwen3_vl.config import VisionConfig

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Centred:
    """The weights of a layer norm."""

    weight: Tensor
    bias: Tensor

    def __call__(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, self.weight.shape, self.weight, self.bias, EPS)


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """One layer. qkv: hidden -> 3 hidden."""

    norm1: Centred
    qkv: Linear
    proj: Linear
    norm2: Centred
    first: Linear
    second: Linear


@dataclass(frozen=True, slots=True)
class MergerWeights:
    """merge^2 patches -> out_hidden_size. The norm is of one patch, or of the joined ones."""

    norm: Centred
    first: Linear
    second: Linear


@dataclass(frozen=True, slots=True)
class TowerWeights:
    """patch: values of a patch -> hidden; positions: [side^2, hidden]; deep: mergers of `deep_layers`."""

    patch: Linear
    positions: Tensor
    blocks: tuple[BlockWeights, ...]
    merger: MergerWeights
    deep: tuple[MergerWeights, ...]


class VisionTower:
    """Float32, one image at a time: images do not see one another."""

    def __init__(self, config: VisionConfig, weights: TowerWeights) -> None:
        self._config = config
        self._weights = weights
        half = config.head_dim // 2
        exponent = torch.arange(0, half, 2, dtype=torch.int64).float() / half
        self._frequencies = 1.0 / (config.rope_theta**exponent)

    def embed(self, image: Image) -> list[Tensor]:
        """float32 [tokens, out_hidden_size] each: of the last layer, then of each of `deep_layers`."""
        weights, config = self._weights, self._config
        places = patch_places(image.grid, config.merge)
        hidden = weights.patch(image.pixels) + self._learned(image.grid, places)
        angles = (places.float()[:, :, None] * self._frequencies).flatten(1)
        rotation = torch.complex(angles.cos(), angles.sin())
        frame = image.grid[1] * image.grid[2]
        deep: dict[int, Tensor] = {}
        for index, block in enumerate(weights.blocks):
            hidden = self._block(block, hidden, rotation, frame)
            if index in config.deep_layers:
                deep[index] = self._merge(weights.deep[config.deep_layers.index(index)], hidden)
        return [self._merge(weights.merger, hidden), *(deep[index] for index in config.deep_layers)]

    def _learned(self, grid: Grid, places: Tensor) -> Tensor:
        """float32 [patches, hidden]: the square of learned positions, stretched to the image."""
        side = self._config.side
        square = self._weights.positions.T.reshape(1, -1, side, side)
        stretched = F.interpolate(square, size=grid[1:], mode="bilinear", align_corners=True)[0]
        return stretched[:, places[:, 0], places[:, 1]].T

    def _block(self, block: BlockWeights, hidden: Tensor, rotation: Tensor, frame: int) -> Tensor:
        width = self._config.hidden_size
        qkv = block.qkv(block.norm1(hidden))
        rotate(qkv[:, : 2 * width].view(len(qkv), -1, self._config.head_dim), rotation)
        hidden = hidden + block.proj(self._attend(qkv.view(-1, frame, 3 * width)).flatten(0, 1))
        return hidden + block.second(F.gelu(block.first(block.norm2(hidden)), approximate="tanh"))

    def _attend(self, qkv: Tensor) -> Tensor:
        """Patches of one frame, each seeing all of them: [frames, patches, hidden]."""
        heads = (*qkv.shape[:2], 3, self._config.num_heads, self._config.head_dim)
        query, key, value = qkv.view(heads).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)

    def _merge(self, merger: MergerWeights, hidden: Tensor) -> Tensor:
        """The norm before the patches are joined, or behind it."""
        joined = hidden.view(-1, self._config.merged_size)
        if len(merger.norm.weight) == self._config.merged_size:
            joined = merger.norm(joined)
        else:
            joined = merger.norm(hidden).view(joined.shape)
        return merger.second(F.gelu(merger.first(joined)))
