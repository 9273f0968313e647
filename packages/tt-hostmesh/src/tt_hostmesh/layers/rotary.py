"""Rotary positions in the order of Hugging Face: element i of a head turns with i + half."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tt_hostmesh.llama.rope import inverse_frequencies


class Rotary:
    """Cosine and sine of every position, float32 [length, dim / 2] each, times the rope type's attention factor."""

    def __init__(self, rope: Mapping[str, Any], dim: int, length: int) -> None:
        """Raises ValueError for a rope type that is not supported."""
        inverse, factor = _frequencies(rope, dim)
        angles = torch.outer(torch.arange(length).float(), inverse)
        self._cos, self._sin = angles.cos() * factor, angles.sin() * factor

    def turn(self, heads: Tensor, positions: Tensor) -> Tensor:
        """`heads`, float32 [n, q, heads, dim], turned to `positions`, int64 [n, q]."""
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        first, second = heads.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _frequencies(rope: Mapping[str, Any], dim: int) -> tuple[Tensor, float]:
    """float32 [dim / 2], and the attention factor."""
    kind = rope["rope_type"]
    if kind == "yarn":
        return _yarn(rope, dim)
    return _proportional(rope, dim) if kind == "proportional" else inverse_frequencies(rope, dim), 1.0


def _proportional(rope: Mapping[str, Any], dim: int) -> Tensor:
    """Only the first part of the elements turns, as fast as in a whole head; the others stand still."""
    turning = int(rope.get("partial_rotary_factor", 1.0) * dim // 2)
    inverse = torch.zeros(dim // 2)
    inverse[:turning] = rope["rope_theta"] ** -(torch.arange(0, 2 * turning, 2, dtype=torch.float32) / dim)
    return inverse / rope.get("factor", 1.0)


def _yarn(rope: Mapping[str, Any], dim: int) -> tuple[Tensor, float]:
    """Frequencies float32 [dim / 2] and the attention factor. Source: arXiv 2309.00071, as transformers reads it."""
    base, factor, original = rope["rope_theta"], rope["factor"], rope["original_max_position_embeddings"]
    plain = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))

    def dimension(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / factor * ramp + plain * (1 - ramp), _attention_factor(rope)


def _attention_factor(rope: Mapping[str, Any]) -> float:
    given = rope.get("attention_factor")
    if given is not None:
        return float(given)
    factor, mscale, all_dim = rope["factor"], rope.get("mscale"), rope.get("mscale_all_dim")
    if mscale and all_dim:
        return magnitude(factor, mscale) / magnitude(factor, all_dim)
    return magnitude(factor)


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """By how much yarn makes attention sharper at a context `factor` times as long."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
