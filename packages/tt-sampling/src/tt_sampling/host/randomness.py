"""Random rows that are drawn alike, and the inverse transform that turns a uniform number into a choice."""

from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from tt_sampling.host.blocks import Blocks


class Limit(Enum):
    """What tells that a row's candidates are complete."""

    NONE = "the whole vocabulary is open"
    TOP_K = "top_k, with or without top_p and min_p"
    MIN_P = "min_p, with or without top_p"
    TOP_P = "top_p alone"


@dataclass(frozen=True, slots=True)
class Randomness:
    """Rows of one batch with the same kind of limit.

    positions: int64 [r], lines of the logits
    first:     the first line when the positions are lines one after the other, else None
    scale:     float32 [r, 1], 1 / temperature
    kth:       int64 [r, 1], top_k - 1; None without top-k
    top_p:     float64 [r, 1];  nucleus: some row's is less than 1
    min_p:     float64 [r, 1]; None when all are 0
    count:     candidates to look at first
    """

    limit: Limit
    positions: Tensor
    first: int | None
    scale: Tensor
    kth: Tensor | None
    top_p: Tensor
    nucleus: bool
    min_p: Tensor | None
    count: int

    def of(self, chosen: Tensor, count: int) -> "Randomness":
        """Some of these rows (`chosen` is int64) with another number of candidates."""
        return Randomness(
            limit=self.limit,
            positions=self.positions[chosen],
            first=None,
            scale=self.scale[chosen],
            kth=None if self.kth is None else self.kth[chosen],
            top_p=self.top_p[chosen],
            nucleus=self.nucleus,
            min_p=None if self.min_p is None else self.min_p[chosen],
            count=count,
        )

    def unscaled(self) -> "Randomness":
        """The same rows over logits that were divided by their temperatures already."""
        return replace(self, scale=torch.ones_like(self.scale))

    def lines(self, blocks: Blocks, here: slice) -> Tensor:
        """The logits of some of the rows, without a copy where that can be."""
        if self.first is None:
            return blocks.logits.index_select(0, self.positions[here])
        return blocks.logits[self.first + here.start : self.first + here.stop]

    def tops(self, blocks: Blocks) -> Tensor:
        """The best logit of each row: float32 [r, 1]."""
        return blocks.maxima.index_select(0, self.positions).amax(-1, keepdim=True)


def choose(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inverse transform of `u` (float64 [r, 1]) over weights (float64 [r, m]).

    Returns the index chosen, int64 [r, 1], the running sums of the weights and the place of `u` among them.
    """
    sums = weights.cumsum(-1)
    total = sums[:, -1:].contiguous()
    target = u * total
    # The last item that adds anything, in case `target` was rounded up to the total.
    end = torch.searchsorted(sums, total)
    index = torch.minimum(torch.searchsorted(sums, target, right=True), end).clamp_(max=weights.shape[1] - 1)
    return index, sums, target
