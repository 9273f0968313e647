"""Full attention of Qwen 3.5 over the paged cache: normed heads, partial rotation, gated output."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.qwen3_5.config import Qwen35Config
from tt_hostmesh.qwen3_5.weights import AttentionWeights

Look = Callable[[Tensor, Tensor], Tensor]
"""(query [t, heads, head_dim], key beside value [t, 2 * kv_heads * head_dim]) -> [t, heads * head_dim]"""


def angles(config: Qwen35Config, length: int) -> Tensor:
    """float32 [length, rotary_dim / 2]."""
    exponent = torch.arange(0, config.rotary_dim, 2).float() / config.rotary_dim
    return torch.outer(torch.arange(length).float(), 1.0 / config.rope_theta**exponent)


def attend(config: Qwen35Config, weights: AttentionWeights, x: Tensor, turn: Tensor, look: Look) -> Tensor:
    """float32 [t, hidden]; `turn`: the angles of each token's position."""
    heads = weights.query(x).view(len(x), config.num_heads, 2, config.head_dim)
    query, gate = heads[:, :, 0], heads[:, :, 1]
    key, value = weights.key_value(x).view(len(x), 2, config.num_kv_heads, config.head_dim).unbind(1)
    query = _rotate(_norm(config, query, weights.query_norm), turn)
    key = _rotate(_norm(config, key, weights.key_norm), turn)
    out = look(query, torch.cat([key.flatten(1), value.flatten(1)], -1))
    return weights.output(out * gate.flatten(1).sigmoid())


def weigh(config: Qwen35Config, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Query [n, t, heads, head_dim] over key and value [n, kv_heads, s, head_dim]; mask bool [n, 1, t, s]."""
    group = config.num_heads // config.num_kv_heads
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    out = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, attn_mask=mask)
    return out.transpose(1, 2).flatten(2)


def _norm(config: Qwen35Config, heads: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(heads, (config.head_dim,), weight, config.rms_norm_eps)


def _rotate(heads: Tensor, turn: Tensor) -> Tensor:
    """The first 2 * turn elements of each head, [t, heads, head_dim], in the halves of transformers."""
    half = turn.shape[-1]
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    cos, sin = turn.cos()[:, None], turn.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)
