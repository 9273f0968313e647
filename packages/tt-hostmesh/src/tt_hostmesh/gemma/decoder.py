"""Gemma's text decoder: what releases 3 and 4 have in common."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.layers.attention import attend, seen_heads
from tt_hostmesh.layers.rotary import Rotary
from tt_hostmesh.layers.step import Step
from tt_hostmesh.llama.linear import Linear


@dataclass(frozen=True, slots=True)
class GemmaLayer:
    """One decoder layer.

    window:     positions seen, None: all
    norms:      before attention, behind it, before the feed-forward network, behind it
    value:      None: the value is the key, before its norm
    value_norm: None: values are taken as they are
    scale:      of the attention logits
    scalar:     what the layer's output is multiplied by
    """

    window: int | None
    head_dim: int
    kv_heads: int
    rotary: Rotary
    norms: tuple[Tensor, Tensor, Tensor, Tensor]
    query: Linear
    key: Linear
    value: Linear | None
    output: Linear
    query_norm: Tensor
    key_norm: Tensor
    value_norm: Tensor | None
    scale: float
    gate: Linear
    up: Linear
    down: Linear
    scalar: float = 1.0


@dataclass(frozen=True, slots=True)
class GemmaWeights:
    """embedding: tied to the head; norm: the last; cap: logits lie between -cap and cap."""

    embedding: Tensor
    layers: Sequence[GemmaLayer]
    norm: Tensor
    eps: float
    cap: float | None


class GemmaDecoder:
    """See layers.compute.Decoder."""

    def __init__(self, weights: GemmaWeights) -> None:
        self.vocab_size, hidden = weights.embedding.shape
        self._weights = weights
        self._head = Linear(weights.embedding)
        self._root = hidden**0.5
        self.windows = tuple(layer.window for layer in weights.layers)
        self.kv_heads = tuple(layer.kv_heads for layer in weights.layers)
        self.widths = tuple(2 * layer.kv_heads * layer.head_dim for layer in weights.layers)

    def hidden(self, tokens: Tensor, step: Step) -> Tensor:
        """float32 [n, q, hidden] behind the last layer; tokens int64 [n, q]."""
        return self.through(self.embed(tokens), step)

    def embed(self, tokens: Tensor) -> Tensor:
        """float32 [..., hidden]: what the first layer gets of tokens, int64 [...]."""
        return F.embedding(tokens, self._weights.embedding) * self._root

    def through(self, hidden: Tensor, step: Step) -> Tensor:
        """float32 [n, q, hidden] through all layers."""
        for index, layer in enumerate(self._weights.layers):
            before, behind, before_mlp, behind_mlp = layer.norms
            mixed = self._attention(index, layer, self._normed(hidden, before), step)
            hidden = hidden + self._normed(mixed, behind)
            normed = self._normed(hidden, before_mlp)
            mixed = layer.down(F.gelu(layer.gate(normed), approximate="tanh") * layer.up(normed))
            hidden = (hidden + self._normed(mixed, behind_mlp)) * layer.scalar
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [n, vocab] of hidden states [n, hidden]."""
        logits = self._head(self._normed(hidden, self._weights.norm))
        cap = self._weights.cap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _attention(self, index: int, layer: GemmaLayer, normed: Tensor, step: Step) -> Tensor:
        heads = (*normed.shape[:2], -1, layer.head_dim)
        query = self._normed(layer.query(normed).view(heads), layer.query_norm)
        raw = layer.key(normed).view(heads)
        value = raw if layer.value is None else layer.value(normed).view(heads)
        if layer.value_norm is not None:
            value = self._normed(value, layer.value_norm)
        key = layer.rotary.turn(self._normed(raw, layer.key_norm), step.positions)
        keys, values = seen_heads(step, index, key, value)
        turned = layer.rotary.turn(query, step.positions)
        return layer.output(attend(turned, keys, values, step.mask(layer.window), layer.scale))

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._weights.eps)
