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
        merger_first=read_linear(source, "visual.merger.mlp.0", merged, merged),
        merger_second=read_linear(source, "visual.merger.mlp.2", config.out_hidden_size, merged),
    )


def _patch(source: Checkpoint, config: VisionConfig) -> Tensor:
    """The convolution over one patch as a product: its stride is its size."""
    return source.read_flat("visual.patch_embed.proj.weight", config.hidden_size, config.patch_values)


def _block(source: Checkpoint, config: VisionConfig, prefix: str) -> BlockWeights:
    width, inner = config.hidden_size, config.intermediate_size
    return BlockWeights(
        norm1=source.read(prefix + "norm1.weight", width),
        qkv=read_qkv(source, f"{prefix}attn.qkv", width, config.head_dim),
        proj=read_linear(source, prefix + "attn.proj", width, width),
        norm2=source.read(prefix + "norm2.weight", width),
        gate_up=Linear(_gate_up(source, prefix, "weight", inner, width), _gate_up(source, prefix, "bias", inner)),
        down=read_linear(source, prefix + "mlp.down_proj", width, inner),
    )


def read_linear(source: Checkpoint, name: str, rows: int, columns: int) -> Linear:
    """A layer with a bias; errors as those of Checkpoint."""
    return Linear(source.read(f"{name}.weight", rows, columns), source.read(f"{name}.bias", rows))


def read_qkv(source: Checkpoint, name: str, width: int, head_dim: int) -> Linear:
    """A tower's query, key and value in one, hidden -> 3 hidden, in the order of llama.rope.rotate."""

    def ordered(kind: str, *inputs: int) -> Tensor:
        query, key, value = source.read(f"{name}.{kind}", 3 * width, *inputs).chunk(3)
        return torch.cat([interleave(query, head_dim), interleave(key, head_dim), value])

    return Linear(ordered("weight", width), ordered("bias"))


def _gate_up(source: Checkpoint, prefix: str, kind: str, *shape: int) -> Tensor:
    return torch.cat([source.read(f"{prefix}mlp.{name}.{kind}", *shape) for name in ("gate_proj", "up_proj")])
