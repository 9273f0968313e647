"""The weights of a Qwen 3.5 checkpoint, float32."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.weights import Checkpoint
from tt_hostmesh.qwen3_5.config import FULL, Qwen35Config


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """A full attention layer. query: hidden -> heads * 2 head_dim, each head's query beside its gate; key_value:
    hidden -> 2 kv_heads * head_dim."""

    query: Linear
    key_value: Linear
    query_norm: Tensor
    key_norm: Tensor
    output: Linear


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """A gated delta rule layer. inputs: hidden -> conv_size (q, k, v), value_size (gate), value_heads (beta), and
    value_heads (decay); conv [conv_size, kernel]; decay, decay_bias [value_heads]."""

    inputs: Linear
    conv: Tensor
    decay: Tensor
    decay_bias: Tensor
    norm: Tensor
    output: Linear


@dataclass(frozen=True, slots=True)
class LayerWeights:
    input_norm: Tensor
    mixer: AttentionWeights | DeltaWeights
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Qwen35Weights:
    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear


def load_weights(directory: str, config: Qwen35Config) -> Qwen35Weights:
    """All weights of the text model. Raises FileNotFoundError, KeyError, ValueError (see Checkpoint)."""
    source = Checkpoint(directory)
    root = "model." if "model.embed_tokens.weight" in source else "model.language_model."
    embedding = source.read(f"{root}embed_tokens.weight", config.vocab_size, config.hidden_size)
    tied = config.tie_word_embeddings or "lm_head.weight" not in source
    head = embedding if tied else source.read("lm_head.weight", config.vocab_size, config.hidden_size)
    return Qwen35Weights(
        embedding=embedding,
        layers=tuple(
            _layer(source, config, f"{root}layers.{index}.", kind) for index, kind in enumerate(config.layer_types)
        ),
        norm=_norm(source, f"{root}norm.weight", config.hidden_size),
        head=Linear(head),
    )


def _layer(source: Checkpoint, config: Qwen35Config, prefix: str, kind: str) -> LayerWeights:
    hidden, inner = config.hidden_size, config.intermediate_size
    gate_up = [source.read(f"{prefix}mlp.{name}_proj.weight", inner, hidden) for name in ("gate", "up")]
    return LayerWeights(
        input_norm=_norm(source, f"{prefix}input_layernorm.weight", hidden),
        mixer=_attention(source, config, prefix) if kind == FULL else _delta(source, config, prefix),
        post_norm=_norm(source, f"{prefix}post_attention_layernorm.weight", hidden),
        gate_up=Linear(torch.cat(gate_up)),
        down=Linear(source.read(f"{prefix}mlp.down_proj.weight", hidden, inner)),
    )


def _attention(source: Checkpoint, config: Qwen35Config, prefix: str) -> AttentionWeights:
    prefix, hidden = f"{prefix}self_attn.", config.hidden_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    key_value = [source.read(f"{prefix}{name}_proj.weight", keys, hidden) for name in ("k", "v")]
    return AttentionWeights(
        query=Linear(source.read(f"{prefix}q_proj.weight", 2 * queries, hidden)),
        key_value=Linear(torch.cat(key_value)),
        query_norm=_norm(source, f"{prefix}q_norm.weight", config.head_dim),
        key_norm=_norm(source, f"{prefix}k_norm.weight", config.head_dim),
        output=Linear(source.read(f"{prefix}o_proj.weight", hidden, queries)),
    )


def _delta(source: Checkpoint, config: Qwen35Config, prefix: str) -> DeltaWeights:
    prefix, hidden, heads = f"{prefix}linear_attn.", config.hidden_size, config.value_heads
    inputs = [
        source.read(f"{prefix}in_proj_{name}.weight", size, hidden)
        for name, size in (("qkv", config.conv_size), ("z", config.value_size), ("b", heads), ("a", heads))
    ]
    return DeltaWeights(
        inputs=Linear(torch.cat(inputs)),
        conv=source.read(f"{prefix}conv1d.weight", config.conv_size, 1, config.kernel)[:, 0],
        decay=-source.read(f"{prefix}A_log", heads).exp(),
        decay_bias=source.read(f"{prefix}dt_bias", heads),
        norm=source.read(f"{prefix}norm.weight", config.value_dim),
        output=Linear(source.read(f"{prefix}out_proj.weight", hidden, config.value_size)),
    )


def _norm(source: Checkpoint, name: str, size: int) -> Tensor:
    """Checkpoints keep these weights as the distance from 1."""
    return 1.0 + source.read(name, size)
