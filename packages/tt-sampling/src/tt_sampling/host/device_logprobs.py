"""Log probabilities that the device computed, in the form of the host's."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tt_sampling.host.logprobs import Logprobs

UNKNOWN_RANK = -1
MORE_THAN_HALF = -0.693


def device_logprobs(tokens: Tensor, values: Tensor, ids: Tensor | None, asked: Sequence[int | None]) -> Logprobs:
    """From what a model returned for these rows; lines of rows that did not ask mean nothing.

    tokens: int [n];  values: float [n] of the sampled tokens, or [n, m] of the best candidates with their `ids`
    """
    return sampled_only(tokens, values) if ids is None else from_top(tokens, values, ids, asked)


def sampled_only(tokens: Tensor, logprobs: Tensor) -> Logprobs:
    """From models that return one number per row, the sampled token's.

    tokens: int [n];  logprobs: float [n]
    Its rank is 1 where no other token can be as likely, and otherwise not known: -1.
    """
    ids = tokens.int().view(-1, 1)
    values = logprobs.float().view(-1, 1)
    # More than half of the probability: no token can have more, and none as much.
    ranks = torch.where(values[:, 0] > MORE_THAN_HALF, 1, UNKNOWN_RANK)
    return Logprobs(ids, values, ranks)


def from_top(tokens: Tensor, values: Tensor, ids: Tensor, asked: Sequence[int | None]) -> Logprobs:
    """From models that return their best candidates.

    tokens: int [n];  values, ids: float and int [n, m], m = 32 in tt-metal;  asked: logprobs per row, None for none
    The sampled token comes from the same candidates. Should it be missing, its logprob is -inf and its rank -1.
    """
    order = values.float().sort(dim=-1, descending=True, stable=True)
    best, ids = order.values, ids.long().gather(1, order.indices)
    tokens = tokens.long().view(-1, 1)
    hit = ids == tokens
    found = hit.any(-1)
    place = hit.int().argmax(-1)
    own = best.gather(1, place.unsqueeze(1)).masked_fill(~found.unsqueeze(1), float("-inf"))
    # Equal logprobs share the rank of the last of them, as a count of "at least as good" has it.
    ranks = (best >= own).sum(-1).masked_fill(~found, UNKNOWN_RANK)
    width = min(max((n for n in asked if n is not None), default=0), best.shape[1])
    return Logprobs(
        ids=torch.cat((tokens, ids[:, :width]), dim=1).int(),
        values=torch.cat((own, best[:, :width]), dim=1),
        ranks=ranks,
    )
