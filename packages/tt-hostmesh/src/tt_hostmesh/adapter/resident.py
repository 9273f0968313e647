"""What lives on the device between two decode steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tt_hostmesh.sampling import SamplingTable, TokenCounts

NOBODY = -1


@dataclass(slots=True)
class Resident:
    """tokens and positions: int64 [B], position -1 = no row; page_table: int64 [B, W] or [layers, B, W]; the
    sampler's tables; rope_deltas: int64 [B], of a model with rotary positions in three axes.

    Touched by commands in the device thread only. `tokens_valid` is False as long as nobody has put tokens there:
    at the start, and after a step whose tokens were sampled on the host.
    """

    rows: int
    tokens: Tensor = field(init=False)
    positions: Tensor = field(init=False)
    page_table: Tensor | None = None
    tokens_valid: bool = False
    sampling: SamplingTable | None = None
    counts: TokenCounts | None = None
    rope_deltas: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = torch.zeros(self.rows, dtype=torch.int64)
        self.positions = torch.full((self.rows,), NOBODY, dtype=torch.int64)
        self.rope_deltas = torch.zeros(self.rows, dtype=torch.int64)

    def clear(self) -> None:
        """Forget everything, as after warm-up."""
        self.__post_init__()
        self.page_table = self.sampling = self.counts = None
        self.tokens_valid = False

    def load(self, tokens: Tensor, positions: Tensor, page_table: Tensor) -> None:
        self.tokens, self.positions, self.page_table = tokens, positions, page_table
        self.tokens_valid = True

    def forget_rows(self, rows: Sequence[int]) -> None:
        """A prefill took these rows: their token and position belong to somebody else now."""
        self.positions[torch.tensor(list(rows))] = NOBODY

    def permute(self, remap: Tensor) -> None:
        """Row i takes the state now in row remap[i]."""
        self.tokens, self.positions = self.tokens[remap], self.positions[remap]
        self.rope_deltas = self.rope_deltas[remap]
        if self.page_table is not None:
            self.page_table = self.page_table[..., remap, :]
        if self.sampling is not None:
            self.sampling = self.sampling.take(remap)
        if self.counts is not None:
            self.counts = self.counts.take(remap)

    def advance(self, rows: Tensor, sampled: Tensor | None) -> None:
        """After a step of `rows`: one position on; `sampled` int64 [n] becomes the next input, None = host sampling."""
        if sampled is not None:
            self.tokens[rows] = sampled
        self.tokens_valid = sampled is not None
        self.positions[rows] += 1
