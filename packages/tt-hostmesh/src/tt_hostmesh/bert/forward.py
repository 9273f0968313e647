"""The weights and the forward pass, float32."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.bert.config import BertConfig
from tt_hostmesh.llama.weights import Checkpoint

Affine = tuple[Tensor, Tensor]
"""Weight and bias, of a linear layer or of a norm."""


@dataclass(frozen=True, slots=True)
class Layer:
    """qkv: hidden -> query, key and value of all heads."""

    qkv: Affine
    attended: Affine
    attention_norm: Affine
    inner: Affine
    outer: Affine
    norm: Affine


class BertCompute:
    """Embeds whole prompts: the first token's last hidden state."""

    def __init__(self, directory: str, config: BertConfig) -> None:
        """Raises FileNotFoundError, KeyError, ValueError (see Checkpoint)."""
        source, hidden = Checkpoint(directory), config.hidden_size
        root = "embeddings." if "embeddings.word_embeddings.weight" in source else "bert.embeddings."
        prefix = root.removesuffix("embeddings.")
        self.config = config
        self._words = source.read(f"{root}word_embeddings.weight", config.vocab_size, hidden)
        self._positions = source.read(f"{root}position_embeddings.weight", config.max_positions, hidden)
        self._kind = source.read(f"{root}token_type_embeddings.weight", config.type_vocab_size, hidden)[0]
        self._norm = _affine(source, f"{root}LayerNorm", hidden)
        self._layers = [_layer(source, config, f"{prefix}encoder.layer.{i}.") for i in range(config.num_layers)]

    @torch.no_grad()
    def embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """float32 [n, hidden] of tokens int64 [n, S]; mask float32 [n, S], 1 where there is a token."""
        hidden = self._words[tokens] + self._positions[: tokens.shape[1]] + self._kind
        hidden = self._normed(hidden, self._norm)
        seen = mask[:, None, None, :].bool()
        for layer in self._layers:
            hidden = self._normed(hidden + self._attend(layer, hidden, seen), layer.attention_norm)
            inner = F.gelu(F.linear(hidden, *layer.inner))
            hidden = self._normed(hidden + F.linear(inner, *layer.outer), layer.norm)
        return hidden[:, 0]

    def _attend(self, layer: Layer, hidden: Tensor, seen: Tensor) -> Tensor:
        rows, length, _ = hidden.shape
        qkv = F.linear(hidden, *layer.qkv).view(rows, length, 3, self.config.num_heads, -1).transpose(1, 3)
        query, key, value = qkv.unbind(2)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return F.linear(out.transpose(1, 2).flatten(2), *layer.attended)

    def _normed(self, hidden: Tensor, norm: Affine) -> Tensor:
        return F.layer_norm(hidden, (self.config.hidden_size,), *norm, self.config.layer_norm_eps)


def _layer(source: Checkpoint, config: BertConfig, prefix: str) -> Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    parts = [_affine(source, f"{prefix}attention.self.{name}", hidden, hidden) for name in ("query", "key", "value")]
    return Layer(
        qkv=(torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])),
        attended=_affine(source, f"{prefix}attention.output.dense", hidden, hidden),
        attention_norm=_affine(source, f"{prefix}attention.output.LayerNorm", hidden),
        inner=_affine(source, f"{prefix}intermediate.dense", inner, hidden),
        outer=_affine(source, f"{prefix}output.dense", hidden, inner),
        norm=_affine(source, f"{prefix}output.LayerNorm", hidden),
    )


def _affine(source: Checkpoint, name: str, *shape: int) -> Affine:
    return source.read(f"{name}.weight", *shape), source.read(f"{name}.bias", shape[0])
