"""The weights of a Qwen 3-VL checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.rope import interleave
from tt_hostmesh.llama.weights import Checkpoint, LlamaWeights, read_weights
from tt_hostmesh.qwen2_5_vl.weights import read_linear, read_qkv
from tt_hostmesh.qwen3_vl.config import Qwen3VLConfig, VisionConfig
from tt_hostmesh.qwen3_vl.tower import BlockWeights, Centred, MergerWeights, TowerWeights

TEXT, VISUAL = "model.language_model.", "model.visual."


@dataclass(frozen=True, slots=True)
class Qwen3VLWeights:
    """head_norms: of each layer, for query and key heads, float32 [head_dim] in the order of llama.rope.rotate."""

    text: LlamaWeights
    head_norms: tuple[tuple[Tensor, Tensor], ...]
    tower: TowerWeights


def load_weights(directory: str | Path, config: Qwen3VLConfig) -> Qwen3VLWeights:
    """All weights in float32. Raises FileNotFoundError, KeyError, ValueError (see llama.weights.Checkpoint)."""
    source = Checkpoint(directory)
    size = config.text.head_dim

    def norm(layer: int, name: str) -> Tensor:
        return interleave(source.read(f"{TEXT}layers.{layer}.self_attn.{name}.weight", size), size)

    return Qwen3VLWeights(
        text=read_weights(source, config.text, TEXT),
        head_norms=tuple((norm(i, "q_norm"), norm(i, "k_norm")) for i in range(config.text.num_layers)),
        tower=_tower(source, config.vision),
    )


def _tower(source: Checkpoint, config: VisionConfig) -> TowerWeights:
    width = config.hidden_size
    patch = source.read_flat(f"{VISUAL}patch_embed.proj.weight", width, config.patch_values)
    return TowerWeights(
        patch=Linear(patch, source.read(f"{VISUAL}patch_embed.proj.bias", width)),
        positions=source.read(f"{VISUAL}pos_embed.weight", config.side**2, width),
        blocks=tuple(_block(source, config, f"{VISUAL}blocks.{i}.") for i in range(config.depth)),
        merger=_merger(source, config, f"{VISUAL}merger.", width),
        deep=tuple(
            _merger(source, config, f"{VISUAL}deepstack_merger_list.{i}.", config.merged_size)
            for i in range(len(config.deep_layers))
        ),
    )


def _block(source: Checkpoint, config: VisionConfig, prefix: str) -> BlockWeights:
    width, inner = config.hidden_size, config.intermediate_size
    return BlockWeights(
        norm1=_centred(source, f"{prefix}norm1", width),
        qkv=read_qkv(source, f"{prefix}attn.qkv", width, config.head_dim),
        proj=read_linear(source, f"{prefix}attn.proj", width, width),
        norm2=_centred(source, f"{prefix}norm2", width),
        first=read_linear(source, f"{prefix}mlp.linear_fc1", inner, width),
        second=read_linear(source, f"{prefix}mlp.linear_fc2", width, inner),
    )


def _merger(source: Checkpoint, config: VisionConfig, prefix: str, normed: int) -> MergerWeights:
    merged = config.merged_size
    return MergerWeights(
        norm=_centred(source, f"{prefix}norm", normed),
        first=read_linear(source, f"{prefix}linear_fc1", merged, merged),
        second=read_linear(source, f"{prefix}linear_fc2", config.out_hidden_size, merged),
    )


def _centred(source: Checkpoint, name: str, size: int) -> Centred:
    return Centred(source.read(f"{name}.weight", size), source.read(f"{name}.bias", size))
