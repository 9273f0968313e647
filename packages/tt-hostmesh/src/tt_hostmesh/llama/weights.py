"""The weights of a Llama checkpoint, read from safetensors files and fused for few large products."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from tt_hostmesh.llama.config import LlamaConfig
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.rope import interleave


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. qkv: hidden -> q_size + 2 kv_size; gate_up: hidden -> 2 intermediate."""

    input_norm: Tensor
    qkv: Linear
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear


class Checkpoint:
    """Tensors by name in a local Hugging Face directory: model.safetensors, or shards with an index."""

    def __init__(self, directory: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """Raises FileNotFoundError if the directory has no safetensors."""
        self._directory = Path(directory)
        self._dtype = dtype
        self._files = self._index()

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str, *shape: int) -> Tensor:
        """The tensor in the wanted dtype. Raises KeyError if it is missing, ValueError for a wrong shape."""
        tensor = self._load(name)
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, the configuration says {shape}")
        return tensor.to(self._dtype)

    def read_flat(self, name: str, rows: int, columns: int) -> Tensor:
        """A tensor with more than two dimensions as [rows, columns]; errors as those of `read`."""
        tensor = self._load(name)
        if len(tensor) != rows or tensor.numel() != rows * columns:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, the configuration says {rows} x {columns} values"
            )
        return tensor.reshape(rows, columns).to(self._dtype)

    def _load(self, name: str) -> Tensor:
        if name not in self._files:
            raise KeyError(f"{self._directory} has no tensor {name!r}")
        with _open(self._files[name]) as handle:
            return handle.get_tensor(name)

    def _index(self) -> dict[str, Path]:
        index = self._directory / "model.safetensors.index.json"
        if index.is_file():
            mapping: dict[str, str] = json.loads(index.read_text())["weight_map"]
            return {name: self._directory / file for name, file in mapping.items()}
        single = self._directory / "model.safetensors"
        if not single.is_file():
            raise FileNotFoundError(
                f"{self._directory} holds neither model.safetensors nor model.safetensors.index.json: "
                "the host mesh serves local Hugging Face directories with safetensors only"
            )
        with _open(single) as handle:
            names: list[str] = list(handle.keys())
        return dict.fromkeys(names, single)


def _open(file: Path) -> Any:
    return safe_open(file, framework="pt")


def load_weights(directory: str | Path, config: LlamaConfig) -> LlamaWeights:
    """All weights in float32. Raises FileNotFoundError, KeyError, ValueError (see Checkpoint)."""
    return read_weights(Checkpoint(directory), config)


def read_weights(source: Checkpoint, config: LlamaConfig, prefix: str = "model.") -> LlamaWeights:
    """prefix: of all names but the head's. Errors as those of Checkpoint."""
    embedding = source.read(f"{prefix}embed_tokens.weight", config.vocab_size, config.hidden_size)
    tied = config.tie_word_embeddings or "lm_head.weight" not in source
    head = embedding if tied else source.read("lm_head.weight", config.vocab_size, config.hidden_size)
    return LlamaWeights(
        embedding=embedding,
        layers=tuple(_layer(source, config, f"{prefix}layers.{i}.") for i in range(config.num_layers)),
        norm=source.read(f"{prefix}norm.weight", config.hidden_size),
        head=Linear(head),
    )


def _layer(source: Checkpoint, config: LlamaConfig, prefix: str) -> LayerWeights:
    attention, mlp, hidden = prefix + "self_attn.", prefix + "mlp.", config.hidden_size
    return LayerWeights(
        input_norm=source.read(prefix + "input_layernorm.weight", hidden),
        qkv=Linear(
            _qkv(source, config, attention, "weight", hidden),
            _qkv(source, config, attention, "bias") if config.attention_bias else None,
        ),
        output=Linear(
            source.read(attention + "o_proj.weight", hidden, config.q_size),
            source.read(attention + "o_proj.bias", hidden) if config.output_bias else None,
        ),
        post_norm=source.read(prefix + "post_attention_layernorm.weight", hidden),
        gate_up=Linear(
            _gate_up(source, config, mlp, "weight", hidden),
            _gate_up(source, config, mlp, "bias") if config.mlp_bias else None,
        ),
        down=Linear(
            source.read(mlp + "down_proj.weight", hidden, config.intermediate_size),
            source.read(mlp + "down_proj.bias", hidden) if config.mlp_bias else None,
        ),
    )


def _qkv(source: Checkpoint, config: LlamaConfig, prefix: str, kind: str, *inputs: int) -> Tensor:
    query = source.read(f"{prefix}q_proj.{kind}", config.q_size, *inputs)
    key = source.read(f"{prefix}k_proj.{kind}", config.kv_size, *inputs)
    value = source.read(f"{prefix}v_proj.{kind}", config.kv_size, *inputs)
    return torch.cat([interleave(query, config.head_dim), interleave(key, config.head_dim), value])


def _gate_up(source: Checkpoint, config: LlamaConfig, prefix: str, kind: str, *inputs: int) -> Tensor:
    names = (f"{prefix}gate_proj.{kind}", f"{prefix}up_proj.{kind}")
    return torch.cat([source.read(name, config.intermediate_size, *inputs) for name in names])
