"""Log probabilities that the device computed, in the form of the host's."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tt_sampling.host.logprobs import Logprobs

UNKNOWN_RANK = -1


def sampled_only(tokens: Tensor, logprobs: Tensor) -> Logprobs:
    """From models that return one number per row, the sampled token's. Its rank is not known: -1.

    tokens: int [n];  logprobs: float [n]
    """
    ids = tokens.int().view(-1, 1)
    return Logprobs(ids, logprobs.float().view(-1, 1), torch.full((ids.shape[0],), UNKNOWN_RANK))


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
