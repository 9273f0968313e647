"""Log probabilities, computed for the rows that ask and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from tt_sampling.host.blocks import Blocks, best, first_of
from tt_sampling.host.scratch import Scratch
from tt_sampling.host.whole import FAINT
from tt_sampling.parameters import RowSampling

_FEW = 4
"""Top tokens for which coarse blocks are the better ones."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """ids: int32 [n, w + 1], the sampled token first;  values: float32, same shape;  ranks: int64 [n], from 1.

    Lines of rows that did not ask hold zeros.
    """

    ids: Tensor
    values: Tensor
    ranks: Tensor


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows of one batch layout that ask for logprobs.

    positions: int64 [m], their lines of the logits
    first:     the first line when the positions are lines one after the other, else None
    top:       (members of `positions` as int64, n) for each number of top tokens asked
    chosen:    (member, token ids) of rows that name the tokens themselves
    width:     the largest number of tokens of any row, the sampled one not counted
    greedy:    none of these rows draws
    """

    positions: Tensor
    first: int | None
    top: Sequence[tuple[Tensor, int]]
    chosen: Sequence[tuple[int, Tensor]]
    width: int
    greedy: bool

    @property
    def fine(self) -> bool:
        """Whether the selection of the top tokens is better off with fine blocks."""
        return any(n > _FEW for _, n in self.top)


def wanted(rows: Sequence[RowSampling], vocab_size: int) -> Wanted | None:
    """What the rows of a batch ask, in its order. None when none asks."""
    positions = [i for i, row in enumerate(rows) if row.wants_logprobs]
    if not positions:
        return None
    members: dict[int, list[int]] = {}
    chosen: list[tuple[int, Tensor]] = []
    for member, i in enumerate(positions):
        logprobs = rows[i].logprobs
        if rows[i].logprob_token_ids:
            chosen.append((member, torch.tensor(rows[i].logprob_token_ids)))
        elif logprobs is not None:
            members.setdefault(vocab_size if logprobs < 0 else logprobs, []).append(member)
    return Wanted(
        positions=torch.tensor(positions),
        first=first_of(positions),
        top=[(torch.tensor(some), n) for n, some in members.items()],
        chosen=chosen,
        width=max([*members, *(named.shape[0] for _, named in chosen)]),
        greedy=all(rows[i].greedy for i in positions),
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """What the rows that ask get their numbers from.

    lines:     logits or log probabilities of the rows that ask, float32 [m, V]
    blocks:    the same in blocks;  positions: int64 [m], 0 to m - 1
    less:      float32 [m, 1], subtracted from what is reported; None for nothing
    best:      float32 [m, 1], the scores of the tokens where they are sure to be the best; else None
    """

    blocks: Blocks
    positions: Tensor
    lines: Tensor
    less: Tensor | None = None
    best: Tensor | None = None

    def reported(self, values: Tensor, members: Tensor | None = None) -> Tensor:
        """The numbers of all rows that ask, or of some of them, as they are reported."""
        if self.less is None:
            return values
        return values - (self.less if members is None else self.less.index_select(0, members))


# Every operation counts here: with the memory of a step cold, a small one costs what a hundred thousand logits do.


def log_sums(lines: Tensor, tops: Tensor, scratch: Scratch) -> Tensor:
    """log(sum(exp(line))) of each line: float32 [m, 1]. `tops` are the maxima, [m, 1]."""
    sums: list[Tensor] = []
    for here, part in scratch.chunks(*lines.shape):
        torch.sub(lines[here], tops[here], out=part)
        sums.append(part.clamp_(min=FAINT).exp_().sum(-1, keepdim=True))
    return _joined(sums).log_().add_(tops)


def ranks_of(lines: Tensor, own: Tensor, scratch: Scratch) -> Tensor:
    """How many tokens of each line score at least `own` (float32 [m, 1]): int64 [m]."""
    counts: list[Tensor] = []
    for here, part in scratch.chunks(*lines.shape):
        # As numbers, because torch adds those several times faster than truth values; exact below 2 ** 24.
        counts.append(torch.ge(lines[here], own[here], out=part).sum(-1))
    return _joined(counts).long()


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def gather(want: Wanted, scores: Scores, tokens: Tensor, scratch: Scratch) -> Logprobs:
    """Pack the scores of the rows that ask. tokens: int64 [n], the sampled token of every line of the batch.

    A rank counts the tokens that score at least as much, as vLLM's `batched_count_greater_than` does.
    """
    sampled = tokens.index_select(0, want.positions).unsqueeze(1)
    own = scores.lines.gather(1, sampled) if scores.best is None else scores.best
    ranks = ranks_of(scores.lines, own, scratch)
    ids, values = _lists(want, scores, sampled, own)
    count = tokens.shape[0]
    if count == ids.shape[0]:
        return Logprobs(ids.contiguous(), values.contiguous(), ranks)
    if want.first is not None:
        after = count - want.first - ids.shape[0]
        rows = (0, 0, want.first, after)
        return Logprobs(pad(ids, rows), pad(values, rows), pad(ranks, rows[2:]))
    return Logprobs(
        ids=ids.new_zeros(count, want.width + 1).index_copy_(0, want.positions, ids),
        values=values.new_zeros(count, want.width + 1).index_copy_(0, want.positions, values),
        ranks=ranks.new_zeros(count).index_copy_(0, want.positions, ranks),
    )


def _lists(want: Wanted, scores: Scores, sampled: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Ids int32 and values float32, [m, w + 1], the sampled token (int64 [m, 1]) and its score first."""
    blocks, reported = scores.blocks, scores.reported(own)
    if len(want.top) == 1 and not want.chosen:
        _, n = want.top[0]
        if n == 0:
            return sampled.int(), reported
        if n == 1 and scores.best is not None:
            return sampled.int().expand(-1, 2), reported.expand(-1, 2)
        values, ids = best(blocks, scores.positions, n)
        ids.clamp_(max=blocks.vocab - 1)
        return torch.cat((sampled, ids), dim=1).int(), torch.cat((reported, scores.reported(values)), dim=1)
    ids = torch.zeros(own.shape[0], want.width + 1, dtype=torch.int32)
    values = torch.zeros(own.shape[0], want.width + 1)
    ids[:, :1], values[:, :1] = sampled, reported
    for members, n in want.top:
        if n:
            top_values, top_ids = best(blocks, scores.positions.index_select(0, members), n)
            ids[:, 1 : n + 1].index_copy_(0, members, top_ids.clamp_(max=blocks.vocab - 1).int())
            values[:, 1 : n + 1].index_copy_(0, members, scores.reported(top_values, members))
    for member, named in want.chosen:
        ids[member, 1 : named.shape[0] + 1] = named
        found = scores.lines[member, named].unsqueeze(0)
        values[member, 1 : named.shape[0] + 1] = scores.reported(found, torch.tensor([member]))[0]
    return ids, values
