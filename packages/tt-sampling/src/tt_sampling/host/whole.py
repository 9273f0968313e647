"""Draws from the whole vocabulary: first a block, then a token in it.

Sums that decide are in float64, and a draw looks at its own row only, so a request's tokens do not depend on the
batch around it.
"""

import torch
from torch import Tensor

from tt_sampling.host.blocks import Blocks
from tt_sampling.host.randomness import Randomness, choose
from tt_sampling.host.scratch import Scratch

FAINT = -87.0
"""Smaller exponents would give denormal numbers, which are slow to compute and weigh nothing."""


def masses(blocks: Blocks, rows: Randomness, scratch: Scratch) -> Tensor:
    """Sum of exp((logit - best) / temperature) over each block: float64 [r, blocks]."""
    blocks_per_row = blocks.maxima.shape[1]
    tops = rows.tops(blocks)
    found = torch.empty(tops.shape[0], blocks_per_row)
    for here, part in scratch.chunks(tops.shape[0], blocks.logits.shape[1]):
        torch.sub(rows.lines(blocks, here), tops[here], out=part)
        part.mul_(rows.scale[here]).clamp_(min=FAINT).exp_()
        torch.sum(part.view(-1, blocks_per_row, blocks.width), -1, out=found[here])
    return found.double()


def mass_before(blocks: Blocks, rows: Randomness, tokens: Tensor, scratch: Scratch) -> Tensor:
    """Mass of the better tokens, and the equals of lower id, of `tokens` (int64 [r]): float64 [r, 1]."""
    vocab, blocks_per_row = blocks.logits.shape[1], blocks.maxima.shape[1]
    tops = rows.tops(blocks)
    limits = blocks.logits[rows.positions, tokens].unsqueeze(1)
    ids = torch.arange(vocab)
    found = torch.empty(tokens.shape[0], blocks_per_row)
    for here, part in scratch.chunks(tokens.shape[0], vocab):
        lines, limit = rows.lines(blocks, here), limits[here]
        before = (lines > limit) | ((lines == limit) & (ids < tokens[here].unsqueeze(1)))
        torch.sub(lines, tops[here], out=part)
        part.mul_(rows.scale[here]).clamp_(min=FAINT).exp_().mul_(before)
        torch.sum(part.view(-1, blocks_per_row, blocks.width), -1, out=found[here])
    return found.double().sum(-1, keepdim=True)


def draw_open(blocks: Blocks, rows: Randomness, mass: Tensor, u: Tensor) -> Tensor:
    """A token of each row: int64 [r].

    mass: float64 [r, blocks], see `masses`;  u: float64 [r, 1], uniform in (0, 1)
    """
    block, sums, target = choose(mass, u)
    share = mass.gather(1, block)
    # Where `u` fell inside the block's share is a uniform number of its own.
    inside = ((target - (sums.gather(1, block) - share)) / share).clamp_(0.0, 1.0)
    logits = blocks.line(rows.positions, block.squeeze(1)).double()
    weights = ((logits - logits.amax(-1, keepdim=True)) * rows.scale).exp_()
    token, _, _ = choose(weights, inside)
    return ((block << blocks.shift) + token).squeeze(1)
