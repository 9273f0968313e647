"""Attention of a step over what its rows see."""

import torch
from torch import Tensor

from tt_hostmesh.layers.step import Step


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """query [n, q, heads, d], key [n, c, kv heads, d], value [n, c, kv heads, e], mask [n, 1, q, c]; gives
    [n, q, heads * e].

    sinks: float32 [heads], a logit of each head that takes its share of the weights and gives nothing.
    """
    group = query.shape[2] // key.shape[2]
    key, value = (part.transpose(1, 2).repeat_interleave(group, 1) for part in (key, value))
    logits = query.transpose(1, 2) @ key.transpose(2, 3) * scale + mask
    if sinks is not None:
        sink = sinks[None, :, None, None].expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, sink], -1)
    weights = logits.softmax(-1)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2).flatten(2)


def seen_heads(step: Step, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keep this step's keys and values, [n, q, kv heads, d] each; gives all that its rows see, [n, c, kv heads, d]."""
    seen = step.exchange(layer, torch.cat([key, value], 2).flatten(2))
    keys, values = seen.view(*seen.shape[:2], 2, *key.shape[2:]).unbind(2)
    return keys, values
