"""Random draws: inverse transform, one uniform number per row, in float64 where sums decide.

A draw looks at its own row only, so a request's tokens do not depend on the batch around it.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tt_sampling.host.blocks import Blocks, best
from tt_sampling.host.noise import uniform
from tt_sampling.host.scratch import Scratch

REJECTIONS = 8
"""Attempts at a wide nucleus before more of its row is sorted."""

_GROWTH = 16

_FAINT = -87.0
"""Smaller exponents would give denormal numbers, which are slow to compute and weigh nothing."""


@dataclass(frozen=True, slots=True)
class Randomness:
    """Random rows of one batch that are drawn alike.

    positions: int64 [r], lines of the logits
    scale:     float32 [r, 1], 1 / temperature
    top_k:     int64 [r, 1], 0 for no limit
    top_p:     float64 [r, 1]
    min_p:     float64 [r, 1]
    count:     candidates to look at first; 0: the whole vocabulary is open
    """

    positions: Tensor
    scale: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    count: int

    def of(self, chosen: Tensor, count: int) -> "Randomness":
        """Some of these rows (`chosen` is int64) with another number of candidates."""
        return Randomness(
            self.positions[chosen],
            self.scale[chosen],
            self.top_k[chosen],
            self.top_p[chosen],
            self.min_p[chosen],
            count,
        )

    def unscaled(self) -> "Randomness":
        """The same rows over logits that were divided by their temperatures already."""
        return replace(self, scale=torch.ones_like(self.scale))


def draw(blocks: Blocks, rows: Randomness, bits: Tensor, scratch: Scratch) -> Tensor:
    """One token per row: int64 [r]. `bits` is int64 [r], see `noise.draw_bits`."""
    if rows.count == 0:
        return _draw_open(blocks, rows, _masses(blocks, rows, scratch), uniform(bits))
    return _draw_narrow(blocks, rows, bits, scratch)


def _masses(blocks: Blocks, rows: Randomness, scratch: Scratch) -> Tensor:
    """Sum of exp((logit - best) / temperature) over each block: float64 [r, blocks]."""
    blocks_per_row = blocks.maxima.shape[1]
    tops = blocks.maxima.index_select(0, rows.positions).amax(-1, keepdim=True)
    masses = torch.empty(rows.positions.shape[0], blocks_per_row)
    for here, part in scratch.chunks(rows.positions.shape[0], blocks.logits.shape[1]):
        torch.index_select(blocks.logits, 0, rows.positions[here], out=part)
        part.sub_(tops[here]).mul_(rows.scale[here]).clamp_(min=_FAINT).exp_()
        torch.sum(part.view(-1, blocks_per_row, blocks.width), -1, out=masses[here])
    return masses.double()


def _draw_open(blocks: Blocks, rows: Randomness, masses: Tensor, u: Tensor) -> Tensor:
    """From the whole distribution: first the block, then the token in it."""
    block, rest = _pick(masses, u.unsqueeze(1))
    logits = blocks.line(rows.positions, block.squeeze(1)).double()
    weights = ((logits - logits.amax(-1, keepdim=True)) * rows.scale).exp_()
    inside, _ = _pick(weights, rest)
    return (block * blocks.width + inside).squeeze(1)


def _pick(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse transform of `u` (float64 [r, 1]) over weights (float64 [r, m]).

    Returns the index picked, int64 [r, 1], and where in that item's share `u` fell: a uniform number of its own.
    """
    sums = weights.cumsum(-1)
    total = sums[:, -1:].contiguous()
    target = u * total
    # The last item that adds anything, in case `target` was rounded up to the total.
    end = torch.searchsorted(sums, total)
    index = torch.minimum(torch.searchsorted(sums, target, right=True), end).clamp_(max=weights.shape[1] - 1)
    share = weights.gather(1, index)
    into = (target - (sums.gather(1, index) - share)) / share
    return index, into.clamp_(0.0, 1.0)


def _draw_narrow(blocks: Blocks, rows: Randomness, bits: Tensor, scratch: Scratch) -> Tensor:
    """From what top-k, top-p and min-p leave, looking at more candidates only for rows that need them."""
    tokens = torch.empty(rows.positions.shape[0], dtype=torch.int64)
    nucleus = (rows.top_k == 0) & (rows.min_p == 0.0)
    mass = torch.zeros_like(rows.top_p)
    masses: Tensor | None = None
    if bool(nucleus.any()):
        masses = _masses(blocks, rows, scratch)
        mass = masses.sum(-1, keepdim=True)
    left = torch.arange(tokens.shape[0])
    u = uniform(bits).unsqueeze(1)
    while True:
        found, settled = _choose(blocks, rows, mass, u)
        tokens[left] = found
        if bool(settled.all()):
            return tokens
        pending = (~settled).nonzero().squeeze(1)
        rows = rows.of(pending, rows.count * _GROWTH)
        left, u, mass, bits = left[pending], u[pending], mass[pending], bits[pending]
        if masses is not None:
            done = _reject(blocks, rows, masses[pending], mass, bits, scratch)
            masses = None
            tokens[left[done >= 0]] = done[done >= 0]
            pending = (done < 0).nonzero().squeeze(1)
            if pending.numel() == 0:
                return tokens
            rows = rows.of(pending, rows.count)
            left, u, mass, bits = left[pending], u[pending], mass[pending], bits[pending]


def _choose(blocks: Blocks, rows: Randomness, mass: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from the best `rows.count` tokens of each row.

    mass: float64 [r, 1], the whole row's, for rows that have top-p alone
    Returns tokens int64 [r] and bool [r]: False where the kept tokens may reach beyond the candidates.
    """
    values, ids = best(blocks, rows.positions, rows.count)
    everything = values.shape[1] >= blocks.logits.shape[1]
    weights = ((values - values[:, :1]).double() * rows.scale).exp_()
    last = values[:, -1:]
    limited = rows.top_k > 0
    kth = values.gather(1, (rows.top_k - 1).clamp(0, values.shape[1] - 1))
    kept = (weights >= rows.min_p) & ((values >= kth) | ~limited)
    settled = limited & (rows.top_k <= values.shape[1]) & (kth > last)
    settled |= weights[:, -1:] < rows.min_p
    alone = ~limited & (rows.min_p == 0.0)
    # Other tokens as good as the last candidate may have been left out: a nucleus must end before them.
    sure = (weights * (values > last)).sum(-1, keepdim=True)
    settled |= alone & (sure >= rows.top_p * mass)
    weights = weights * kept
    sums = weights.cumsum(-1)
    total = torch.where(alone, mass, sums[:, -1:])
    weights *= ((sums - weights) < rows.top_p * total) | (rows.top_p >= 1.0)
    index, _ = _pick(weights, u)
    tokens = ids.gather(1, index).squeeze(1)
    return tokens, settled.squeeze(1) if not everything else torch.ones_like(settled).squeeze(1)


def _reject(blocks: Blocks, rows: Randomness, masses: Tensor, mass: Tensor, bits: Tensor, scratch: Scratch) -> Tensor:
    """Draw from the whole row until a token of the nucleus comes: int64 [r], -1 where none came or top-p is not alone.

    A token is in the nucleus when the tokens before it, better ones and equals of lower id, weigh less than top-p.
    """
    tokens = torch.full((rows.positions.shape[0],), -1, dtype=torch.int64)
    left = ((rows.top_k == 0) & (rows.min_p == 0.0)).squeeze(1).nonzero().squeeze(1)
    for attempt in range(1, REJECTIONS + 1):
        if left.numel() == 0:
            break
        some = rows.of(left, 0)
        drawn = _draw_open(blocks, some, masses[left], uniform(bits[left], attempt))
        before = _mass_before(blocks, some, drawn, scratch)
        fits = (before < some.top_p * mass[left]).squeeze(1)
        tokens[left[fits]] = drawn[fits]
        left = left[~fits]
    return tokens


def _mass_before(blocks: Blocks, rows: Randomness, tokens: Tensor, scratch: Scratch) -> Tensor:
    """Mass of the tokens that come before `tokens` (int64 [r]) in each row: float64 [r, 1]."""
    vocab, blocks_per_row = blocks.logits.shape[1], blocks.maxima.shape[1]
    tops = blocks.maxima.index_select(0, rows.positions).amax(-1, keepdim=True)
    limits = blocks.logits[rows.positions, tokens].unsqueeze(1)
    ids = torch.arange(vocab)
    masses = torch.empty(tokens.shape[0], blocks_per_row)
    for here, part in scratch.chunks(tokens.shape[0], vocab):
        torch.index_select(blocks.logits, 0, rows.positions[here], out=part)
        before = (part > limits[here]) | ((part == limits[here]) & (ids < tokens[here].unsqueeze(1)))
        part.sub_(tops[here]).mul_(rows.scale[here]).clamp_(min=_FAINT).exp_().mul_(before)
        torch.sum(part.view(-1, blocks_per_row, blocks.width), -1, out=masses[here])
    return masses.double().sum(-1, keepdim=True)
