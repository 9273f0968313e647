"""Log probabilities, computed for the rows that ask and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tt_sampling.host.blocks import best, first_of, split
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
    """

    positions: Tensor
    first: int | None
    top: Sequence[tuple[Tensor, int]]
    chosen: Sequence[tuple[int, Tensor]]
    width: int

    def lines(self, logits: Tensor) -> Tensor:
        """The logits of these rows, without a copy where that can be."""
        if self.first is None:
            return logits.index_select(0, self.positions)
        return logits[self.first : self.first + self.positions.shape[0]]


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
    )


def gather(want: Wanted, scores: Tensor, tokens: Tensor) -> Logprobs:
    """Pack the scores of the rows that ask.

    scores: float32 [m, V], log probabilities (or logits) of the rows of `want`
    tokens: int64 [n], the sampled token of every line of the batch
    A rank counts the tokens that score at least as much, as vLLM's `batched_count_greater_than` does.
    """
    sampled = tokens.index_select(0, want.positions).unsqueeze(1)
    own = scores.gather(1, sampled)
    ids, values = _lists(want, scores, sampled, own)
    ranks = (scores >= own).view(torch.int8).sum(-1)
    count = tokens.shape[0]
    if count == ids.shape[0]:
        return Logprobs(ids, values, ranks)
    return Logprobs(
        ids=ids.new_zeros(count, want.width + 1).index_copy_(0, want.positions, ids),
        values=values.new_zeros(count, want.width + 1).index_copy_(0, want.positions, values),
        ranks=ranks.new_zeros(count).index_copy_(0, want.positions, ranks),
    )


def _lists(want: Wanted, scores: Tensor, sampled: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Ids int32 and values float32, [m, w + 1], the sampled token (int64 [m, 1]) and its score first."""
    if len(want.top) == 1 and not want.chosen:
        _, n = want.top[0]
        if n == 0:
            return sampled.int(), own
        values, ids = best(split(scores, fine=n > _FEW), torch.arange(scores.shape[0]), n)
        ids.clamp_(max=scores.shape[1] - 1)
        return torch.cat((sampled, ids), dim=1).int(), torch.cat((own, values), dim=1)
    ids = torch.zeros(scores.shape[0], want.width + 1, dtype=torch.int32)
    values = torch.zeros(scores.shape[0], want.width + 1)
    ids[:, :1], values[:, :1] = sampled, own
    for members, n in want.top:
        if n:
            top_values, top_ids = best(split(scores, fine=n > _FEW), members, n)
            ids[:, 1 : n + 1].index_copy_(0, members, top_ids.clamp_(max=scores.shape[1] - 1).int())
            values[:, 1 : n + 1].index_copy_(0, members, top_values)
    for member, named in want.chosen:
        ids[member, 1 : named.shape[0] + 1] = named
        values[member, 1 : named.shape[0] + 1] = scores[member, named]
    return ids, values
