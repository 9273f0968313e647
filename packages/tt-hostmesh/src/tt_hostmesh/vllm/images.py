"""How vLLM turns an image into placeholder tokens and patches, for models with Qwen's image processor.

vLLM's own processing of these models imports torchvision, and does videos too; this one needs transformers and PIL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transformers import BatchFeature, Qwen2_5_VLProcessor
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
    PromptUpdate,
)

if TYPE_CHECKING:
    from vllm.multimodal.inputs import MultiModalKwargsItems
    from vllm.multimodal.parse import MultiModalDataItems


class ImageProcessor(Qwen2_5_VLProcessor):
    """transformers' processor without its part for videos, which needs torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None, **_: Any) -> None:
        super().__init__(image_processor, tokenizer, None, chat_template=chat_template)


class ImageInfo(BaseProcessingInfo):
    """What the model takes. By these limits vLLM refuses other media."""

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"image": None}

    def get_hf_processor(self, **kwargs: object) -> ImageProcessor:
        return self.ctx.get_hf_processor(ImageProcessor, **kwargs)

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Tokens of the largest image that the processor does not make smaller."""
        processor = self.get_hf_processor().image_processor
        token = (processor.patch_size * processor.merge_size) ** 2
        return {"image": int(processor.size["longest_edge"]) // token}


class DummyImages(BaseDummyInputsBuilder[ImageInfo]):
    """Inputs to measure by."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return self.info.get_hf_processor().image_token * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """The largest images, square."""
        edge = int(self.info.get_hf_processor().image_processor.size["longest_edge"] ** 0.5)
        images = self._get_dummy_images(width=edge, height=edge, num_images=mm_counts.get("image", 0))
        return {"image": images}


class ImagePrompts(BaseMultiModalProcessor[ImageInfo]):
    """An image's placeholder in the prompt becomes as many as it has tokens."""

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, Any],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        processor = self.info.get_hf_processor(**hf_processor_mm_kwargs)
        token, patches = processor.image_token_id, processor.image_processor.merge_size**2

        def placeholders(index: int) -> list[int]:
            grid: Any = out_mm_kwargs["image"][index]["image_grid_thw"].data
            return [token] * (int(grid.prod()) // patches)

        return [PromptReplacement(modality="image", target=[token], replacement=placeholders)]

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        """The processor joins the patches of all images: each image gets its own of them."""
        grids: Any = hf_inputs.get("image_grid_thw")
        if grids is None:
            return {}
        return {
            "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", grids.prod(-1)),
            "image_grid_thw": MultiModalFieldConfig.batched("image"),
        }
