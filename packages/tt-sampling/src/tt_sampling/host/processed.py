"""Logits as they are drawn from, for the logprobs modes that ask for them (`processed_*`): exact, not fast."""

from torch import Tensor

NEVER = float("-inf")


def processed(logits: Tensor, scale: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Scaled logits with -inf where min-p, top-k and top-p leave nothing, in vLLM's order. A new tensor.

    logits: float32 [m, V];  scale: 1 / temperature, 1 for a greedy row;  top_k: 0 for no limit;  the others as given,
    all [m, 1]. A greedy row has no limits.
    """
    logits = logits * scale
    probabilities = logits.softmax(-1)
    logits.masked_fill_(probabilities < probabilities.amax(-1, keepdim=True) * min_p, NEVER)
    values, ids = logits.sort(dim=-1, descending=True, stable=True)
    kth = values.gather(1, (top_k - 1).clamp_(min=0))
    values.masked_fill_((values < kth) & (top_k > 0), NEVER)
    weights = values.double().softmax(-1)
    before = weights.cumsum(-1) - weights
    # A sum that is rounded to 1 must not drop the tail of a row without top-p.
    dropped = (before >= top_p) & (top_p < 1.0)
    dropped[:, 0] = False
    values.masked_fill_(dropped, NEVER)
    return logits.scatter_(1, ids, values)
