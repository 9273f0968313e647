"""The sizes of one Qwen 2.5-VL checkpoint, read from its Hugging Face configuration."""

from dataclasses import dataclass, replace
from typing import Any

from tt_hostmesh.llama.config import LlamaConfig
from tt_hostmesh.qwen2_5_vl.placeholder import PatchPlaceholder


def sections_of(decoder: LlamaConfig) -> tuple[int, int, int]:
    """How many frequencies of a head turn with each axis. Raises ValueError when they are not all of them."""
    first, second, third = decoder.rope["mrope_section"]
    if first + second + third != decoder.head_dim // 2:
        raise ValueError(f"mrope_section {[first, second, third]} does not add up to {decoder.head_dim // 2}")
    return first, second, third


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The vision tower. window: side of an attention window, merged patches; full_layers: layers without windows."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    patch_values: int
    merge: int
    window: int
    full_layers: frozenset[int]
    out_hidden_size: int
    rope_theta: float

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @staticmethod
    def of(hf_config: Any) -> "VisionConfig":
        """From a transformers configuration (release 4 or 5). Raises ValueError for what the tower cannot do."""
        if hf_config.hidden_act != "silu":
            raise ValueError(f"vision_config.hidden_act={hf_config.hidden_act!r} is not supported: allowed is 'silu'")
        rope: dict[str, Any] = getattr(hf_config, "rope_parameters", None) or {}
        return VisionConfig(
            depth=hf_config.depth,
            hidden_size=hf_config.hidden_size,
            intermediate_size=hf_config.intermediate_size,
            num_heads=hf_config.num_heads,
            patch_values=hf_config.in_channels * hf_config.temporal_patch_size * hf_config.patch_size**2,
            merge=hf_config.spatial_merge_size,
            window=hf_config.window_size // hf_config.spatial_merge_size // hf_config.patch_size,
            full_layers=frozenset(hf_config.fullatt_block_indexes),
            out_hidden_size=hf_config.out_hidden_size,
            rope_theta=rope.get("rope_theta", 10000.0),
        )


@dataclass(frozen=True, slots=True)
class Qwen25VLConfig:
    """text: the decoder, with biases on query, key and value only; sections: frequencies of a head that turn with the
    frame, with the line and with the column of a token; placeholder: the token that stands for an image."""

    text: LlamaConfig
    vision: VisionConfig
    sections: tuple[int, int, int]
    placeholder: PatchPlaceholder

    @staticmethod
    def of(hf_config: Any) -> "Qwen25VLConfig":
        """From a transformers configuration. Raises ValueError for what the model cannot do."""
        text = hf_config.text_config
        if getattr(text, "use_sliding_window", False):
            raise ValueError("text_config.use_sliding_window=True is not supported: every layer sees the whole context")
        decoder = LlamaConfig.of(text)
        tied = bool(getattr(hf_config, "tie_word_embeddings", False))
        vision = VisionConfig.of(hf_config.vision_config)
        return Qwen25VLConfig(
            text=replace(decoder, attention_bias=True, output_bias=False, tie_word_embeddings=tied),
            vision=vision,
            sections=sections_of(decoder),
            placeholder=PatchPlaceholder(hf_config.image_token_id, vision.merge),
        )
