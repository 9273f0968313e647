"""Rotary position embedding: frequencies as transformers computes them, applied as a complex product."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SUPPORTED = ("default", "linear", "llama3")


def inverse_frequencies(rope: Mapping[str, Any], head_dim: int) -> Tensor:
    """float32 [head_dim / 2]. Raises ValueError for a rope type or a partial rotation that is not supported."""
    kind = rope["rope_type"]
    if kind not in SUPPORTED:
        raise ValueError(f"rope_type={kind!r} is not supported: allowed are {', '.join(SUPPORTED)}")
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(f"partial_rotary_factor={rope['partial_rotary_factor']} is not supported: only 1.0")
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    inverse = 1.0 / (rope["rope_theta"] ** exponent)
    if kind == "linear":
        return inverse / rope["factor"]
    return _llama3(inverse, rope) if kind == "llama3" else inverse


def rotations(rope: Mapping[str, Any], head_dim: int, length: int) -> Tensor:
    """complex64 [length, head_dim / 2]: cos + i sin of each position's angles."""
    angles = torch.outer(torch.arange(length).float(), inverse_frequencies(rope, head_dim))
    return torch.complex(angles.cos(), angles.sin())


def interleave(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder the output rows of a q or k projection, [heads * head_dim, ...], for `rotate`.

    Hugging Face pairs element i of a head with i + head_dim/2; a complex number wants the two side by side. The dot
    product of q and k does not depend on the order.
    """
    heads = weight.shape[0] // head_dim
    return weight.view(heads, 2, head_dim // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def rotate(heads: Tensor, rotation: Tensor) -> None:
    """Rotate `heads`, float32 [tokens, heads, head_dim], in place by `rotation`, complex64 [tokens, head_dim / 2]."""
    pairs = torch.view_as_complex(heads.view(*heads.shape[:-1], -1, 2))
    pairs.mul_(rotation[:, None])


def _llama3(inverse: Tensor, rope: Mapping[str, Any]) -> Tensor:
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    wavelength = 2 * math.pi / inverse
    scaled = torch.where(wavelength > original / low, inverse / factor, inverse)
    smooth = (original / wavelength - low) / (high - low)
    smoothed = (1 - smooth) * scaled / factor + smooth * scaled
    medium = ~(wavelength < original / high) & ~(wavelength > original / low)
    return torch.where(medium, smoothed, scaled)
