"""Draws from what top-k, top-p and min-p leave of a row, by way of its best candidates.

Candidates are ordered by logit and equals by id, so what a limit cuts off never depends on the batch.
"""

import torch
from torch import Tensor

from tt_sampling.host.blocks import Blocks, best
from tt_sampling.host.noise import uniform
from tt_sampling.host.randomness import Limit, Randomness, choose
from tt_sampling.host.scratch import Scratch
from tt_sampling.host.whole import draw_open, mass_before, masses

REJECTIONS = 8
"""Attempts at a wide nucleus before more of its row is sorted."""

GROWTH = 16
"""How many times more candidates a row gets when those at hand do not hold all that it may draw."""


def draw(blocks: Blocks, rows: Randomness, bits: Tensor, scratch: Scratch) -> Tensor:
    """One token per row: int64 [r]. `bits` is int64 [r], see `noise.draw_bits`."""
    u = uniform(bits).unsqueeze(1)
    if rows.limit is Limit.NONE:
        return draw_open(blocks, rows, masses(blocks, rows, scratch), u)
    if rows.limit is Limit.TOP_P:
        return _draw_nucleus(blocks, rows, bits, u, scratch)
    return _draw_candidates(blocks, rows, u, None)


def _draw_nucleus(blocks: Blocks, rows: Randomness, bits: Tensor, u: Tensor, scratch: Scratch) -> Tensor:
    """Top-p alone: from the first candidates when they hold the nucleus, else by rejection, else from more."""
    mass = masses(blocks, rows, scratch)
    total = mass.sum(-1, keepdim=True)
    tokens, complete = _try(blocks, rows, u, total)
    if bool(complete.all()):
        return tokens
    wide = (~complete).nonzero().squeeze(1)
    tokens[wide] = _reject(blocks, rows.of(wide, rows.count), mass[wide], bits[wide], scratch)
    rest = (tokens < 0).nonzero().squeeze(1)
    if rest.numel():
        tokens[rest] = _draw_candidates(blocks, rows.of(rest, rows.count * GROWTH), u[rest], total[rest])
    return tokens


def _reject(blocks: Blocks, rows: Randomness, mass: Tensor, bits: Tensor, scratch: Scratch) -> Tensor:
    """Draw from the whole vocabulary until a token of the nucleus comes: int64 [r], -1 where none came.

    A token is in the nucleus when the tokens before it, better ones and equals of lower id, weigh less than top-p.
    """
    tokens = torch.full((rows.positions.shape[0],), -1, dtype=torch.int64)
    left = torch.arange(tokens.shape[0])
    for attempt in range(1, REJECTIONS + 1):
        some = rows.of(left, rows.count)
        here = mass[left]
        drawn = draw_open(blocks, some, here, uniform(bits[left], attempt).unsqueeze(1))
        before = mass_before(blocks, some, drawn, scratch)
        fits = (before < some.top_p * here.sum(-1, keepdim=True)).squeeze(1)
        tokens[left[fits]] = drawn[fits]
        left = left[~fits]
        if left.numel() == 0:
            break
    return tokens


def _draw_candidates(blocks: Blocks, rows: Randomness, u: Tensor, total: Tensor | None) -> Tensor:
    """From candidates, more of them for the rows that need more. `total` see `_try`."""
    tokens, complete = _try(blocks, rows, u, total)
    if not bool(complete.all()):
        more = (~complete).nonzero().squeeze(1)
        of_more = None if total is None else total[more]
        tokens[more] = _draw_candidates(blocks, rows.of(more, rows.count * GROWTH), u[more], of_more)
    return tokens


def _try(blocks: Blocks, rows: Randomness, u: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
    """Draw from the best `rows.count` tokens of each row.

    total: float64 [r, 1], the mass of the whole row where top-p is alone; a vocabulary's mass cannot be told from
           the candidates
    Returns tokens int64 [r] and bool [r]: False where what may be drawn may reach beyond the candidates.
    """
    values, ids = best(blocks, rows.positions, rows.count)
    weights = (values - values[:, :1]).double().mul_(rows.scale).exp_()
    complete = _complete(rows, values, weights, total)
    if rows.kth is not None:
        weights *= values >= values.gather(1, rows.kth.clamp(max=values.shape[1] - 1))
    if rows.min_p is not None:
        weights *= weights >= rows.min_p
    if rows.nucleus:
        sums = weights.cumsum(-1)
        limit = rows.top_p * (sums[:, -1:] if total is None else total)
        # A sum that is rounded to the total must not drop the tail of a row without top-p.
        weights *= ((sums - weights) < limit) | (rows.top_p >= 1.0)
    index, _, _ = choose(weights, u)
    if values.shape[1] >= blocks.logits.shape[1]:
        complete = torch.ones_like(complete)
    return ids.gather(1, index).squeeze(1), complete.squeeze(1)


def _complete(rows: Randomness, values: Tensor, weights: Tensor, total: Tensor | None) -> Tensor:
    """Which rows' candidates hold all that may be drawn: bool [r, 1].

    Tokens as good as the last candidate may have been left out, so what is kept must end before them.
    """
    last = values[:, -1:]
    if rows.kth is not None:
        kth = values.gather(1, rows.kth.clamp(max=values.shape[1] - 1))
        return (kth > last) & (rows.kth < values.shape[1])
    if rows.limit is Limit.MIN_P and rows.min_p is not None:
        return weights[:, -1:] < rows.min_p
    sure = (weights * (values > last)).sum(-1, keepdim=True)
    return sure >= rows.top_p * (sure if total is None else total)
