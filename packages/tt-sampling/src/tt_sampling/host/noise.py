"""The seed contract of `tt_sampling.seeds` for many rows at once."""

import torch
from torch import Tensor

from tt_sampling.seeds import GOLDEN, MIX_1, MIX_2, mix64, signed64

_GOLDEN, _MIX_1, _MIX_2 = map(signed64, (GOLDEN, MIX_1, MIX_2))


def base(stream: int) -> int:
    """The part of a draw that depends on the stream alone: signed 64 bit."""
    return signed64(mix64(stream + GOLDEN))


def draw_bits(bases: Tensor, index: Tensor) -> Tensor:
    """`seeds.draw_bits` of each row: int64 [r] in and out, to be read as unsigned."""
    return _mix(bases + (index + 1) * _GOLDEN)


def uniform(bits: Tensor, attempt: int = 0) -> Tensor:
    """`seeds.uniform` of each row: float64 [r] in (0, 1). Every attempt is a fresh draw."""
    if attempt:
        bits = _mix(bits + signed64(attempt * GOLDEN))
    return (_shifted(bits, 12).double() + 0.5) * 2.0**-52


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    # int64 shifts are arithmetic: clear the copies of the sign.
    return torch.bitwise_right_shift(x, bits) & ((1 << (64 - bits)) - 1)
