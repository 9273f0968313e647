"""Qwen 3-VL as the plugin registers it: vLLM reads from the class how images become tokens and patches."""

from __future__ import annotations

from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.multimodal import MULTIMODAL_REGISTRY

from tt_hostmesh.qwen3_vl.generator import Qwen3VL
from tt_hostmesh.vllm.images import DummyImages, ImageInfo, ImagePrompts


@MULTIMODAL_REGISTRY.register_processor(ImagePrompts, info=ImageInfo, dummy_inputs=DummyImages)
class Qwen3VLForConditionalGeneration(Qwen3VL, SupportsMultiModal):
    """The class of tt-metal's name, over the software mesh's model."""

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """What stands in a chat's text for an image where the checkpoint's template has nothing for it."""
        return "<|vision_start|><|image_pad|><|vision_end|>" if modality == "image" else None
