"""Logits with a few candidates above one floor: what a sampler needs, at a thousandth of the memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tt_hostmesh.sampling import SamplingTable, TokenCounts, sample


@dataclass(frozen=True, slots=True)
class Peaks:
    """Logits of n rows: `values` float32 [n, k] at the tokens `ids` int64 [n, k], `floor` at all others.

    The floor must be so low that no penalty lifts a token from it over a candidate, and that its share of the
    probability is nothing in float32.
    """

    ids: Tensor
    values: Tensor
    floor: float
    vocab_size: int

    def dense(self, rows: Tensor | None = None, total: int | None = None) -> Tensor:
        """The same as float32 [n, vocab]; with `rows` int64 [n] placed among `total` rows, zeros elsewhere."""
        n = len(self.ids)
        if rows is None or total is None or len(rows) == total:
            return torch.full((n, self.vocab_size), self.floor).scatter_(1, self.ids, self.values)
        out = torch.zeros(total, self.vocab_size)
        out[rows] = self.floor
        out[rows[:, None], self.ids] = self.values
        return out

    def sample(
        self, table: SamplingTable, positions: Tensor, counts: TokenCounts | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """As `sampling.sample` of the dense logits. `counts`: of the candidates only, as `TokenCounts.at` gives."""
        picked, logprobs = sample(self.values, table, positions, counts, generator)
        return self.ids.gather(1, picked[:, None])[:, 0], logprobs
