"""The way of a block from the device to the host."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False, slots=True)
class BlockPayload:
    """What decode_forward returns: the host payloads of its steps, and their events. width: columns of the result,
    more than there are steps where the sequence's end is reached; row: the lone live row of a block, None for a batch.
    """

    steps: list[Any]
    events: list[Any]
    width: int
    row: int | None

    def gather(self, tokens: list[Tensor]) -> Tensor:
        """int64 [1, width] of the lone row, or [B, 1]; columns without a step are 0. tokens: int [B] of each step."""
        if self.row is None:
            return torch.stack([step.long() for step in tokens], 1)
        out = torch.zeros(1, self.width, dtype=torch.int64)
        for i, step in enumerate(tokens):
            out[0, i] = step[self.row]
        return out
