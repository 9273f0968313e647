"""Gemma 3's text decoder."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.layers.attention import attend, seen_heads
from tt_hostmesh.layers.rotary import Rotary
from tt_hostmesh.layers.step import Step
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.weights import Checkpoint

SLIDING = "sliding_attention"


@dataclass(frozen=True, slots=True)
class Gemma3Layer:
    """One decoder layer. Norms are their weights plus one; window: positions seen, None: all."""

    window: int | None
    rotary: Rotary
    norms: tuple[Tensor, Tensor, Tensor, Tensor]
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: Tensor
    key_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


class Gemma3Decoder:
    """See layers.compute.Decoder."""

    def __init__(self, config: Any, source: Checkpoint, max_seq_len: int) -> None:
        """`config`: transformers' Gemma3TextConfig. Raises ValueError for what the model cannot do, KeyError for a
        tensor that the checkpoint lacks."""
        _check(config)
        self.vocab_size: int = config.vocab_size
        self.num_kv_heads: int = config.num_key_value_heads
        self._eps: float = config.rms_norm_eps
        self._head_dim: int = config.head_dim
        self._scale: float = config.query_pre_attn_scalar**-0.5
        self._root = config.hidden_size**0.5
        self._cap: float | None = config.final_logit_softcapping
        prefix = "language_model.model." if "language_model.model.norm.weight" in source else "model."
        self._embedding = source.read(f"{prefix}embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._head = Linear(self._embedding)
        self._norm = 1 + source.read(f"{prefix}norm.weight", config.hidden_size)
        turns = {kind: Rotary(rope, config.head_dim, max_seq_len) for kind, rope in config.rope_parameters.items()}
        self._layers = tuple(
            _layer(config, source, f"{prefix}layers.{i}.", kind, turns[kind])
            for i, kind in enumerate(config.layer_types)
        )
        self.windows = tuple(layer.window for layer in self._layers)
        self.widths = (2 * self.num_kv_heads * self._head_dim,) * len(self._layers)

    def hidden(self, tokens: Tensor, step: Step) -> Tensor:
        """float32 [n, q, hidden] behind the last layer; tokens int64 [n, q]."""
        hidden = F.embedding(tokens, self._embedding) * self._root
        for index, layer in enumerate(self._layers):
            before, behind, before_mlp, behind_mlp = layer.norms
            mixed = self._attention(index, layer, self._normed(hidden, before), step)
            hidden = hidden + self._normed(mixed, behind)
            normed = self._normed(hidden, before_mlp)
            mixed = layer.down(F.gelu(layer.gate(normed), approximate="tanh") * layer.up(normed))
            hidden = hidden + self._normed(mixed, behind_mlp)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [n, vocab] of hidden states [n, hidden]."""
        logits = self._head(self._normed(hidden, self._norm))
        return logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)

    def _attention(self, index: int, layer: Gemma3Layer, normed: Tensor, step: Step) -> Tensor:
        heads = (*normed.shape[:2], -1, self._head_dim)
        query = self._normed(layer.query(normed).view(heads), layer.query_norm)
        key = self._normed(layer.key(normed).view(heads), layer.key_norm)
        turned = layer.rotary.turn(query, step.positions)
        key = layer.rotary.turn(key, step.positions)
        keys, values = seen_heads(step, index, key, layer.value(normed).view(heads))
        return layer.output(attend(turned, keys, values, step.mask(layer.window), self._scale))

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._eps)


def _check(config: Any) -> None:
    allowed = {"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": None, "attention_bias": False}
    for name, value in {**allowed, "use_bidirectional_attention": False}.items():
        found = getattr(config, name, value)
        if found != value:
            raise ValueError(f"{name}={found!r} is not supported: only {value!r}")


def _layer(config: Any, source: Checkpoint, prefix: str, kind: str, rotary: Rotary) -> Gemma3Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim

    def linear(name: str, rows: int, columns: int) -> Linear:
        return Linear(source.read(f"{prefix}{name}.weight", rows, columns))

    def norm(name: str, size: int = hidden) -> Tensor:
        return 1 + source.read(f"{prefix}{name}.weight", size)

    return Gemma3Layer(
        window=config.sliding_window if kind == SLIDING else None,
        rotary=rotary,
        norms=(
            norm("input_layernorm"),
            norm("post_attention_layernorm"),
            norm("pre_feedforward_layernorm"),
            norm("post_feedforward_layernorm"),
        ),
        query=linear("self_attn.q_proj", queries, hidden),
        key=linear("self_attn.k_proj", keys, hidden),
        value=linear("self_attn.v_proj", keys, hidden),
        output=linear("self_attn.o_proj", hidden, queries),
        query_norm=norm("self_attn.q_norm", config.head_dim),
        key_norm=norm("self_attn.k_norm", config.head_dim),
        gate=linear("mlp.gate_proj", inner, hidden),
        up=linear("mlp.up_proj", inner, hidden),
        down=linear("mlp.down_proj", hidden, inner),
    )
