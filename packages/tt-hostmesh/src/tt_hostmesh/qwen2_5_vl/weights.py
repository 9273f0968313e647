"""The weights of a Qwen 2.5-VL checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.rope import interleave
from tt_hostmesh.llama.weights import Checkpoint, LlamaWeights, read_weights
from tt_hostmesh.qwen2_5_vl.config import Qwen25VLConfig, VisionConfig
from tt_hostmesh.qwen2_5_vl.tower import BlockWeights, TowerWeights


@dataclass(frozen=True, slots=True)
class Qwen25VLWeights:
    text: LlamaWeights
    tower: TowerWeights


def load_weights(directory: str | Path, config: Qwen25VLConfig) -> Qwen25VLWeights:
    """All weights in float32. Raises FileNotFoundError, KeyError, ValueError (see llama.weights.Checkpoint)."""
    source = Checkpoint(directory)
    return Qwen25VLWeights(read_weights(source, config.text), _tower(source, config.vision))


def _tower(source: Checkpoint, config: VisionConfig) -> TowerWeights:
    width, merged = config.hidden_size, config.hidden_size * config.merge**2
    return TowerWeights(
        patch=Linear(_patch(source, config)),
        blocks=tuple(_block(source, config, f"visual.blocks.{i}.") for i in range(config.depth)),
        merger_norm=source.read("visual.merger.ln_q.weight", width),
        merger_first=_linear(source, "visual.merger.mlp.0", merged, merged),
        merger_second=_linear(source, "visual.merger.mlp.2", config.out_hidden_size, merged),
    )


def _patch(source: Checkpoint, config: VisionConfig) -> Tensor:
    """The convolution over one patch as a product: its stride is its size."""
    return source.read_flat("visual.patch_embed.proj.weight", config.hidden_size, config.patch_values)


def _block(source: Checkpoint, config: VisionConfig, prefix: str) -> BlockWeights:
    width, inner = config.hidden_size, config.intermediate_size
    return BlockWeights(
        norm1=source.read(prefix + "norm1.weight", width),
        qkv=Linear(_qkv(source, config, prefix, "weight", width), _qkv(source, config, prefix, "bias")),
        proj=_linear(source, prefix + "attn.proj", width, width),
        norm2=source.read(prefix + "norm2.weight", width),
        gate_up=Linear(_gate_up(source, prefix, "weight", inner, width), _gate_up(source, prefix, "bias", inner)),
        down=_linear(source, prefix + "mlp.down_proj", width, inner),
    )


def _linear(source: Checkpoint, name: str, rows: int, columns: int) -> Linear:
    return Linear(source.read(f"{name}.weight", rows, columns), source.read(f"{name}.bias", rows))


def _qkv(source: Checkpoint, config: VisionConfig, prefix: str, kind: str, *inputs: int) -> Tensor:
    query, key, value = source.read(f"{prefix}attn.qkv.{kind}", 3 * config.hidden_size, *inputs).chunk(3)
    return torch.cat([interleave(query, config.head_dim), interleave(key, config.head_dim), value])


def _gate_up(source: Checkpoint, prefix: str, kind: str, *shape: int) -> Tensor:
    return torch.cat([source.read(f"{prefix}mlp.{name}.{kind}", *shape) for name in ("gate_proj", "up_proj")])
