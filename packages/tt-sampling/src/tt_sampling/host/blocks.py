"""The logits in blocks: one vectorised pass finds every block's maximum, and the rest looks at few blocks.

The best `count` tokens of a row lie in its `count` best blocks, so neither an argmax nor a partial selection has to
walk the vocabulary a second time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import pad

_COARSE, _FINE = (8, 7, 6, 5), (6, 5, 7)
"""Block widths as powers of two, the best first: the pass over the logits is faster with wide blocks, and what comes
after looks at less with narrow ones."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """logits: float32 [n, V];  lines: the same memory as [n * V / width, width];  maxima: float32 [n, V / width]

    width is 1 << shift.
    """

    logits: Tensor
    lines: Tensor
    maxima: Tensor
    shift: int

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
    return Blocks(logits, lines, lines.amax(-1).view(logits.shape[0], -1), shift)


def argmax(blocks: Blocks, positions: Tensor) -> Tensor:
    """The best token of these rows, the lowest id among equals: int64 [r]."""
    # `max` finds the first of equals as `argmax` does, and is the faster of the two.
    block = blocks.maxima.index_select(0, positions).max(-1).indices
    return (block << blocks.shift) + blocks.line(positions, block).max(-1).indices


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
    block = blocks.maxima.index_select(0, positions).topk(count, dim=-1, sorted=False).indices
    lines = blocks.line(positions, block).flatten(1)
    found = lines.topk(count, dim=-1, sorted=False).indices
    ids = (block.gather(1, found >> blocks.shift) << blocks.shift) + (found & (blocks.width - 1))
    ids = ids.sort(dim=-1).values
    values = blocks.logits.view(-1).take(ids + (positions * vocab).unsqueeze(1))
    values, order = values.sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


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
