"""Gemma 3 as the plugin registers it: vLLM reads from the class how images become tokens and pictures."""

from __future__ import annotations

from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.multimodal import MULTIMODAL_REGISTRY

from tt_hostmesh.gemma.generator import SeeingGemma3
from tt_hostmesh.vllm.pictures import DummyPictures, PictureInfo, PicturePrompts


@MULTIMODAL_REGISTRY.register_processor(PicturePrompts, info=PictureInfo, dummy_inputs=DummyPictures)
class Gemma3ForConditionalGeneration(SeeingGemma3, SupportsMultiModal):
    """The class of tt-metal's name, over the software mesh's model."""

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """What stands in a chat's text for an image where the checkpoint's template has nothing for it."""
        return "<start_of_image>" if modality == "image" else None
