"""GPT-OSS's decoder."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.layers.attention import attend, seen_heads
from tt_hostmesh.layers.experts import mix
from tt_hostmesh.layers.kept import SLIDING
from tt_hostmesh.layers.rotary import Rotary
from tt_hostmesh.layers.step import Step
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.weights import Checkpoint

LIMIT, SHARPNESS = 7.0, 1.702
"""Of the experts' gate: values beyond the first are cut, the second steepens its sigmoid."""


@dataclass(frozen=True, slots=True)
class Experts:
    """gate_up: [experts, hidden, 2 * inner], gate and up side by side; down: [experts, inner, hidden]; with biases."""

    router: Linear
    gate_up: Tensor
    gate_up_bias: Tensor
    down: Tensor
    down_bias: Tensor

    def __call__(self, number: int, hidden: Tensor) -> Tensor:
        """What one expert makes of [m, hidden]."""
        both = hidden @ self.gate_up[number] + self.gate_up_bias[number]
        gate, up = both[:, ::2].clamp(max=LIMIT), both[:, 1::2].clamp(-LIMIT, LIMIT)
        return (up + 1) * gate * torch.sigmoid(SHARPNESS * gate) @ self.down[number] + self.down_bias[number]


@dataclass(frozen=True, slots=True)
class GptOssLayer:
    """One decoder layer. window: positions seen, None: all; sinks: [heads]."""

    window: int | None
    input_norm: Tensor
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    sinks: Tensor
    post_norm: Tensor
    experts: Experts


class GptOssDecoder:
    """See layers.compute.Decoder."""

    def __init__(self, config: Any, source: Checkpoint, max_seq_len: int) -> None:
        """`config`: transformers' GptOssConfig. Raises ValueError for what the model cannot do, KeyError for a tensor
        that the checkpoint lacks: quantised experts are not read."""
        self.vocab_size: int = config.vocab_size
        self._head_dim: int = config.head_dim
        self._eps: float = config.rms_norm_eps
        self._picks: int = config.num_experts_per_tok
        self._embedding = source.read("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._head = Linear(source.read("lm_head.weight", config.vocab_size, config.hidden_size))
        self._norm = source.read("model.norm.weight", config.hidden_size)
        self._rotary = Rotary(config.rope_parameters, config.head_dim, max_seq_len)
        self._layers = tuple(
            _layer(config, source, f"model.layers.{i}.", kind) for i, kind in enumerate(config.layer_types)
        )
        self.windows = tuple(layer.window for layer in self._layers)
        self.kv_heads: tuple[int, ...] = (config.num_key_value_heads,) * len(self._layers)
        self.widths = (2 * config.num_key_value_heads * self._head_dim,) * len(self._layers)

    def hidden(self, tokens: Tensor, step: Step) -> Tensor:
        """float32 [n, q, hidden] behind the last layer; tokens int64 [n, q]."""
        hidden = F.embedding(tokens, self._embedding)
        for index, layer in enumerate(self._layers):
            hidden = hidden + self._attention(index, layer, self._normed(hidden, layer.input_norm), step)
            hidden = hidden + self._mixed(layer.experts, self._normed(hidden, layer.post_norm))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [n, vocab] of hidden states [n, hidden]."""
        return self._head(self._normed(hidden, self._norm))

    def _attention(self, index: int, layer: GptOssLayer, normed: Tensor, step: Step) -> Tensor:
        heads = (*normed.shape[:2], -1, self._head_dim)
        query = self._rotary.turn(layer.query(normed).view(heads), step.positions)
        key = self._rotary.turn(layer.key(normed).view(heads), step.positions)
        keys, values = seen_heads(step, index, key, layer.value(normed).view(heads))
        scale, mask = self._head_dim**-0.5, step.mask(layer.window)
        return layer.output(attend(query, keys, values, mask, scale, layer.sinks))

    def _mixed(self, experts: Experts, normed: Tensor) -> Tensor:
        flat = normed.flatten(0, 1)
        best, picked = experts.router(flat).topk(self._picks, -1)
        return mix(flat, picked, best.softmax(-1), experts).view_as(normed)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._eps)


def _layer(config: Any, source: Checkpoint, prefix: str, kind: str) -> GptOssLayer:
    hidden, attention = config.hidden_size, f"{prefix}self_attn."
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim

    def linear(name: str, rows: int, columns: int) -> Linear:
        bias = source.read(f"{name}.bias", rows) if config.attention_bias else None
        return Linear(source.read(f"{name}.weight", rows, columns), bias)

    return GptOssLayer(
        window=config.sliding_window if kind == SLIDING else None,
        input_norm=source.read(f"{prefix}input_layernorm.weight", hidden),
        query=linear(f"{attention}q_proj", queries, hidden),
        key=linear(f"{attention}k_proj", keys, hidden),
        value=linear(f"{attention}v_proj", keys, hidden),
        output=linear(f"{attention}o_proj", hidden, queries),
        sinks=source.read(f"{attention}sinks", config.num_attention_heads),
        post_norm=source.read(f"{prefix}post_attention_layernorm.weight", hidden),
        experts=_experts(config, source, f"{prefix}mlp."),
    )


def _experts(config: Any, source: Checkpoint, prefix: str) -> Experts:
    hidden, inner, count = config.hidden_size, config.intermediate_size, config.num_local_experts
    router = source.read(f"{prefix}router.weight", count, hidden)
    return Experts(
        router=Linear(router, source.read(f"{prefix}router.bias", count)),
        gate_up=source.read(f"{prefix}experts.gate_up_proj", count, hidden, 2 * inner),
        gate_up_bias=source.read(f"{prefix}experts.gate_up_proj_bias", count, 2 * inner),
        down=source.read(f"{prefix}experts.down_proj", count, inner, hidden),
        down_bias=source.read(f"{prefix}experts.down_proj_bias", count, hidden),
    )
