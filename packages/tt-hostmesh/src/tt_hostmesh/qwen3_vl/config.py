"""The sizes of one Qwen 3-VL checkpoint, read from its Hugging Face configuration."""

from dataclasses import dataclass, replace
from typing import Any

from tt_hostmesh.llama.config import LlamaConfig
from tt_hostmesh.qwen2_5_vl.config import sections_of
from tt_hostmesh.qwen2_5_vl.placeholder import PatchPlaceholder


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision tower. side: of the square of learned positions; deep_layers: those that the decoder gets something
    of, besides the last."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    patch_values: int
    merge: int
    side: int
    deep_layers: tuple[int, ...]
    out_hidden_size: int
    rope_theta: float

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def merged_size(self) -> int:
        return self.hidden_size * self.merge**2

    @staticmethod
    def of(hf_config: Any) -> "VisionConfig":
        """From a transformers configuration. Raises ValueError for what the tower cannot do."""
        if hf_config.hidden_act != "gelu_pytorch_tanh":
            raise ValueError(
                f"vision_config.hidden_act={hf_config.hidden_act!r} is not supported: allowed is 'gelu_pytorch_tanh'"
            )
        rope: dict[str, Any] = getattr(hf_config, "rope_parameters", None) or {}
        return VisionConfig(
            depth=hf_config.depth,
            hidden_size=hf_config.hidden_size,
            intermediate_size=hf_config.intermediate_size,
            num_heads=hf_config.num_heads,
            patch_values=hf_config.in_channels * hf_config.temporal_patch_size * hf_config.patch_size**2,
            merge=hf_config.spatial_merge_size,
            side=int(hf_config.num_position_embeddings**0.5),
            deep_layers=tuple(hf_config.deepstack_visual_indexes),
            out_hidden_size=hf_config.out_hidden_size,
            rope_theta=rope.get("rope_theta", 10000.0),
        )


@dataclass(frozen=True, slots=True)
class Qwen3VLConfig:
    """text: the decoder, whose query and key heads have norms; sections: how many frequencies of a head turn with the
    frame, with the line and with the column of a token; placeholder: the token that stands for an image."""

    text: LlamaConfig
    vision: VisionConfig
    sections: tuple[int, int, int]
    placeholder: PatchPlaceholder

    @staticmethod
    def of(hf_config: Any) -> "Qwen3VLConfig":
        """From a transformers configuration. Raises ValueError for what the model cannot do."""
        decoder = LlamaConfig.of(hf_config.text_config)
        vision = VisionConfig.of(hf_config.vision_config)
        return Qwen3VLConfig(
            text=replace(decoder, tie_word_embeddings=bool(getattr(hf_config, "tie_word_embeddings", False))),
            vision=vision,
            sections=sections_of(decoder),
            placeholder=PatchPlaceholder(hf_config.image_token_id, vision.merge),
        )
