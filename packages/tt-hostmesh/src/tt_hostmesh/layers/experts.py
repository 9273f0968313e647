"""A mixture of experts: each token goes to a few of them."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

Expert = Callable[[int, Tensor], Tensor]
"""(number of the expert, float32 [m, hidden]) -> [m, hidden]"""


def mix(hidden: Tensor, picked: Tensor, weights: Tensor, expert: Expert) -> Tensor:
    """float32 [t, hidden]: the sum of what each token's experts make of it. picked, weights: [t, k]."""
    out = torch.zeros_like(hidden)
    for number in sorted(set(cast("list[int]", picked.flatten().tolist()))):
        rows, places = torch.where(picked == number)
        out.index_add_(0, rows, expert(number, hidden[rows]) * weights[rows, places, None])
    return out
