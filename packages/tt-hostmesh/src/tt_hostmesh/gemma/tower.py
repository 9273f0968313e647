"""Gemma 3's vision tower (SigLIP) and what brings its output to the decoder: a picture becomes a few embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.llama.linear import Linear


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """Pictures of `side` x `side` patches of `patch` x `patch` pixels; tokens_side: of the square that is left of them;
    out_size: of an embedding."""

    side: int
    patch: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    eps: float
    tokens_side: int
    out_size: int

    @staticmethod
    def of(hf_config: Any) -> "VisionConfig":
        """From the transformers configuration of the whole model. Raises ValueError for what the tower cannot do."""
        vision, text = hf_config.vision_config, hf_config.get_text_config()
        if vision.hidden_act != "gelu_pytorch_tanh":
            raise ValueError(
                f"vision_config.hidden_act={vision.hidden_act!r} is not supported: allowed is 'gelu_pytorch_tanh'"
            )
        side, tokens_side = vision.image_size // vision.patch_size, round(hf_config.mm_tokens_per_image**0.5)
        if tokens_side**2 != hf_config.mm_tokens_per_image or side % tokens_side:
            raise ValueError(
                f"mm_tokens_per_image={hf_config.mm_tokens_per_image} is not supported: a picture of {side} x {side} "
                "patches is pooled to a square of tokens"
            )
        return VisionConfig(
            side=side,
            patch=vision.patch_size,
            hidden_size=vision.hidden_size,
            intermediate_size=vision.intermediate_size,
            num_layers=vision.num_hidden_layers,
            num_heads=vision.num_attention_heads,
            eps=vision.layer_norm_eps,
            tokens_side=tokens_side,
            out_size=text.hidden_size,
        )


@dataclass(frozen=True, slots=True)
class Centred:
    """The weights of a layer norm."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True)
class VisionLayer:
    norm1: Centred
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    norm2: Centred
    first: Linear
    second: Linear


@dataclass(frozen=True, slots=True)
class TowerWeights:
    """patch: values of a patch -> hidden; positions: [patches, hidden]; soft_norm, project: behind the pooling."""

    patch: Linear
    positions: Tensor
    layers: Sequence[VisionLayer]
    norm: Centred
    soft_norm: Tensor
    project: Linear


class VisionTower:
    """Float32. Pictures do not see one another."""

    def __init__(self, config: VisionConfig, weights: TowerWeights) -> None:
        self._config = config
        self._weights = weights

    def embed(self, pixels: Tensor) -> Tensor:
        """float32 [pictures * tokens, out_size] of pixels, float32 [pictures, 3, height, width]."""
        hidden = self._weights.patch(self._patches(pixels)) + self._weights.positions
        for layer in self._weights.layers:
            hidden = hidden + self._attention(layer, self._centred(hidden, layer.norm1))
            inner = F.gelu(layer.first(self._centred(hidden, layer.norm2)), approximate="tanh")
            hidden = hidden + layer.second(inner)
        pooled = self._pool(self._centred(hidden, self._weights.norm)).flatten(0, 1)
        soft = self._weights.soft_norm
        return self._weights.project(F.rms_norm(pooled, soft.shape, soft, self._config.eps))

    def _patches(self, pixels: Tensor) -> Tensor:
        """float32 [pictures, patches, 3 * patch * patch]."""
        side, patch = self._config.side, self._config.patch
        cut = pixels.view(len(pixels), -1, side, patch, side, patch)
        return cut.permute(0, 2, 4, 1, 3, 5).reshape(len(pixels), side * side, -1)

    def _attention(self, layer: VisionLayer, normed: Tensor) -> Tensor:
        heads = (*normed.shape[:2], self._config.num_heads, -1)
        query, key, value = (part(normed).view(heads).transpose(1, 2) for part in (layer.query, layer.key, layer.value))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return layer.output(mixed.transpose(1, 2).flatten(2))

    def _pool(self, hidden: Tensor) -> Tensor:
        """float32 [pictures, tokens, hidden]: means of square neighbourhoods."""
        config = self._config
        square = hidden.transpose(1, 2).reshape(len(hidden), -1, config.side, config.side)
        return F.avg_pool2d(square, config.side // config.tokens_side).flatten(2).transpose(1, 2)

    def _centred(self, hidden: Tensor, norm: Centred) -> Tensor:
        return F.layer_norm(hidden, norm.weight.shape, norm.weight, norm.bias, self._config.eps)
