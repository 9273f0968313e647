"""The logits in blocks: one vectorised pass finds every block's maximum, and the rest looks at few blocks.

The best `count` tokens of a row lie in its `count` best blocks, so neither an argmax nor a partial selection has to
walk the vocabulary a second time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

_COARSE, _FINE = (8, 7, 6, 5), (6, 5, 7)
"""Block widths as powers of two, the best first: the pass over the logits is faster with wide blocks, and what comes
after looks at less with narrow ones."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """logits: float32 [n, V];  lines: the same memory as [n * V / width, width];  maxima: float32 [n, V / width]

    width is 1 << shift;  vocab: V before it was padded
    """

    logits: Tensor
    lines: Tensor
    maxima: Tensor
    shift: int
    vocab: int

    @property
    def width(self) -> int:
        return 1 << self.shift

    def line(self, positions: Tensor, block: Tensor) -> Tensor:
        """Blocks of these rows: `block` is int64 [r, ...] and the answer [r, ..., width]."""
        first = positions * self.maxima.shape[1]
        at = block + first.view(-1, *[1] * (block.dim() - 1))
        return self.lines.index_select(0, at.flatten()).view(*block.shape, self.width)


def split(logits: Tensor, *, fine: bool) -> Blocks:
    """Block up contiguous logits, finely for `best`, coarsely for all else.

    A vocabulary that no block width divides is copied and padded with -inf.
    """
    vocab = logits.shape[1]
    shifts = _FINE if fine else _COARSE
    shift = next((shift for shift in shifts if vocab % (1 << shift) == 0), None)
    if shift is None:
        shift = shifts[0]
        logits = pad(logits, (0, -vocab % (1 << shift)), value=float("-inf"))
    lines = logits.view(-1, 1 << shift)
    return Blocks(logits, lines, lines.amax(-1).view(logits.shape[0], -1), shift, vocab)


def argmax(blocks: Blocks, positions: Tensor) -> Tensor:
    """The best token of these rows, the lowest id among equals: int64 [r]. `positions` is int64 [r], in order."""
    # `max` finds the first of equals as `argmax` does, and is the faster of the two. Few operations: with the memory of
    # a step cold, each of them costs what a tenth of the pass over the logits does.
    maxima = blocks.maxima
    every = positions.shape[0] == maxima.shape[0]
    block = (maxima if every else maxima.index_select(0, positions)).max(-1).indices
    lines = blocks.lines.view(maxima.shape[0], maxima.shape[1], blocks.width)
    return lines[positions, block].max(-1).indices.add_(block, alpha=blocks.width)


def best(blocks: Blocks, positions: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best tokens of these rows, best first, equals by id: values float32 and ids int64, [r, count].

    Every token left out is at most as good as the last one; among equals of the last one it is open which came in.
    """
    vocab = blocks.logits.shape[1]
    count = min(count, vocab)
    if count == 1:
        ids = argmax(blocks, positions).unsqueeze(1)
        return blocks.maxima.index_select(0, positions).amax(-1, keepdim=True), ids
    if 4 * count * blocks.width >= vocab:
        return _best_of_all(blocks.logits.index_select(0, positions), count)
    least, block = blocks.maxima.index_select(0, positions).topk(count, dim=-1, sorted=False)
    block = block.sort(dim=-1).values
    values, places = _reaching(blocks.line(positions, block).flatten(1), least.amin(-1, keepdim=True), count)
    values, order = values.sort(dim=-1, descending=True, stable=True)
    places = places.gather(1, order[:, :count])
    ids = (block.gather(1, places >> blocks.shift) << blocks.shift) + (places & (blocks.width - 1))
    return values[:, :count], ids


def _reaching(lines: Tensor, least: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values of each line that hold its `count` best, and their places in ascending order: [r, >= count].

    lines: float32 [r, m];  least: [r, 1], a bound that `count` or more of each line reach
    Mostly few more reach it, and then a comparison is several times faster than a selection. Lines are filled up
    with -inf.
    """
    height, width = lines.shape
    found = (lines >= least).view(-1).nonzero().squeeze(1)
    line = torch.div(found, width, rounding_mode="floor")
    many = torch.bincount(line, minlength=height)
    most = int(many.max())
    if most > 2 * count or int(many.min()) < count:
        places = lines.topk(count, dim=-1, sorted=False).indices.sort(dim=-1).values
        return lines.gather(1, places), places
    # Where each is put: the places of its line start at line * most.
    at = torch.arange(found.shape[0]) + (torch.arange(height) * most - many.cumsum(0) + many)[line]
    values = lines.new_full((height * most,), float("-inf")).index_copy_(0, at, lines.view(-1)[found])
    places = found.new_zeros(height * most).index_copy_(0, at, found - line * width)
    return values.view(height, most), places.view(height, most)


def _best_of_all(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if 8 * count >= logits.shape[1]:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    ids = logits.topk(count, dim=-1, sorted=False).indices.sort(dim=-1).values
    values, order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def first_of(positions: Sequence[int]) -> int | None:
    """The first of lines that follow one another, so that they can be taken as a slice; None for others."""
    return positions[0] if list(positions) == list(range(positions[0], positions[0] + len(positions))) else None
