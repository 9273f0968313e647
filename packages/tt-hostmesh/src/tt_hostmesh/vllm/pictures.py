"""How vLLM turns an image into placeholder tokens and pictures of one size, for models with Gemma 3's image processor.

vLLM's own processing imports torchvision; this one needs transformers and PIL. It puts no blank lines around an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transformers import BatchFeature, Gemma3Processor
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
    PromptUpdate,
    PromptUpdateDetails,
)

if TYPE_CHECKING:
    from vllm.multimodal.inputs import MultiModalKwargsItems
    from vllm.multimodal.parse import MultiModalDataItems


class PictureProcessor(Gemma3Processor):
    """transformers' processor, which also says how many crops it made of each image.

    What stands for an image is the same in every prompt: blank lines would join those of the text around it.
    """

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        chat_template: Any = None,
        image_seq_length: int = 256,
        **more: Any,
    ) -> None:
        super().__init__(image_processor, tokenizer, chat_template, image_seq_length, **more)
        self.full_image_sequence = self.full_image_sequence.strip("\n")

    @property
    def unused_input_names(self) -> list[str]:
        return []

    def tokens_of(self, crops: int) -> list[int]:
        """What stands in a prompt for an image and so many crops of it."""
        text = self.replace_image_token({"num_crops": [crops]}, 0)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def largest(self, settings: Mapping[str, Any]) -> tuple[int, int]:
        """The crops of an image with most of them, and pixels of a side of one. settings: mm_processor_kwargs."""
        known: Any = self.valid_processor_kwargs
        own = self.tokenizer.init_kwargs
        merged = self._merge_kwargs(known, tokenizer_init_kwargs=own, **settings)["images_kwargs"]
        side = int(self.image_processor.size["height"])
        if not merged["do_pan_and_scan"]:
            return 0, side
        return int(merged["pan_and_scan_max_num_crops"]), max(side, int(merged["pan_and_scan_min_crop_size"]))


class PictureInfo(BaseProcessingInfo):
    """What the model takes. By these limits vLLM refuses other media."""

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"image": None}

    def get_hf_processor(self, **kwargs: object) -> PictureProcessor:
        return self.ctx.get_hf_processor(PictureProcessor, **kwargs)

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Tokens of an image with as many crops as the processor makes."""
        crops, _ = self.largest()
        return {"image": len(self.get_hf_processor().tokens_of(crops))}

    def largest(self) -> tuple[int, int]:
        """See PictureProcessor."""
        return self.get_hf_processor().largest(self.ctx.get_merged_mm_kwargs({}))


class DummyPictures(BaseDummyInputsBuilder[PictureInfo]):
    """Inputs to measure by."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        return self.info.get_hf_processor().boi_token * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """Images so wide that they are cropped as often as the processor does it."""
        crops, side = self.info.largest()
        count = mm_counts.get("image", 0)
        return {"image": self._get_dummy_images(width=side * max(1, crops), height=side, num_images=count)}


class PicturePrompts(BaseMultiModalProcessor[PictureInfo]):
    """An image's mark in the prompt becomes the tokens of its pictures, between the marks of their begin and end."""

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, Any],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        processor = self.info.get_hf_processor(**hf_processor_mm_kwargs)

        def pictures(index: int) -> PromptUpdateDetails:
            crops: Any = out_mm_kwargs["image"][index]["num_crops"].data
            return PromptUpdateDetails.select_token_id(processor.tokens_of(int(crops)), processor.image_token_ids[0])

        return [PromptReplacement(modality="image", target=[processor.image_token_id], replacement=pictures)]

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        """The processor puts the pictures of all images in one row: each image gets its own of them."""
        crops: Any = hf_inputs.get("num_crops")
        if crops is None:
            return {}
        return {
            "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", crops + 1),
            "num_crops": MultiModalFieldConfig.batched("image"),
        }
