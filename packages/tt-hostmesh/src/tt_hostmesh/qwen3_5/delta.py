"""One gated delta rule layer over a span of tokens, from a state to the next state."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.qwen3_5.config import Qwen35Config
from tt_hostmesh.qwen3_5.weights import DeltaWeights


def mix(config: Qwen35Config, weights: DeltaWeights, x: Tensor, conv: Tensor, memory: Tensor) -> Tensor:
    """float32 [n, t, hidden] of n sequences, each t tokens further; `conv` [n, conv_size, kernel - 1] and `memory`
    [n, value_heads, key_dim, value_dim] are their states, and are brought up to date in place."""
    projected = weights.inputs(x.reshape(-1, x.shape[-1])).view(*x.shape[:2], -1)
    heads = config.value_heads
    mixed, gate, beta, decay = _parts(projected, config.conv_size, config.value_size, heads, heads)
    query, key, value = _heads(config, _convolve(weights.conv, mixed, conv))
    forget = (weights.decay * F.softplus(decay + weights.decay_bias)).exp()
    out = torch.stack(
        [
            _remember(memory, query[:, t], key[:, t], value[:, t], beta[:, t].sigmoid(), forget[:, t])
            for t in range(x.shape[1])
        ],
        1,
    )
    normed = F.rms_norm(out, (config.value_dim,), weights.norm, config.rms_norm_eps)
    return weights.output((normed * F.silu(gate.reshape(out.shape))).flatten(0, 1).flatten(1)).view(x.shape)


def _convolve(kernel: Tensor, inputs: Tensor, before: Tensor) -> Tensor:
    """Causal, a channel at a time: [n, t, channels]. `before` takes the last inputs."""
    channels = inputs.transpose(1, 2)
    seen = torch.cat([before, channels], -1)
    out = F.conv1d(seen, kernel[:, None], groups=len(kernel))
    before.copy_(seen[..., seen.shape[-1] - before.shape[-1] :])
    return F.silu(out).transpose(1, 2)


def _heads(config: Qwen35Config, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key [n, t, value_heads, key_dim], both of length 1 (the query scaled), and value."""
    keys = config.key_heads * config.key_dim
    query, key, value = _parts(mixed, keys, keys, config.value_size)
    repeat = config.value_heads // config.key_heads
    shape = (*mixed.shape[:2], config.key_heads, config.key_dim)
    query, key = (_unit(part.reshape(shape)).repeat_interleave(repeat, 2) for part in (query, key))
    return query * config.key_dim**-0.5, key, value.reshape(*mixed.shape[:2], config.value_heads, config.value_dim)


def _parts(x: Tensor, *sizes: int) -> list[Tensor]:
    """`x` divided along its last dimension."""
    ends = list(accumulate(sizes))
    return [x[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def _remember(memory: Tensor, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, forget: Tensor) -> Tensor:
    """One token: forget a part, correct what the key recalls towards the value, answer the query.

    memory [n, h, k, v], changed in place; query, key [n, h, k]; value [n, h, v]; beta, forget [n, h].
    """
    memory.mul_(forget[..., None, None])
    recalled = (memory * key[..., None]).sum(-2)
    memory.add_(key[..., None] * ((value - recalled) * beta[..., None])[..., None, :])
    return (memory * query[..., None]).sum(-2)
