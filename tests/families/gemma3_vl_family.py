"""Text and images over sliding and full attention: the tokens of an image see one another."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tt-hostmesh" / "tests"))

import torch
from family import Asked, Family
from launch import Run
from layered_checkpoints import BEGIN_IMAGE, END_IMAGE, IMAGE, write_gemma3_with_images
from mixture import mixture
from pictures import SeeingReference, picture, placed, prompt

ARCHITECTURE = "TTGemma3ForConditionalGeneration"
"""With the prefix: vLLM's own class of the bare name cannot be inspected without torchvision."""
SIDE, TOKENS = 32, 16
MARKS = {"<start_of_image>": BEGIN_IMAGE, "<image_soft_token>": IMAGE, "<end_of_image>": END_IMAGE}


def write(folder: Path) -> None:
    """Images are 16 tokens, between two marks, which are never generated."""
    write_gemma3_with_images(folder, side=SIDE, tokens=TOKENS)
    described = folder / "config.json"
    described.write_text(json.dumps({**json.loads(described.read_text()), "architectures": [ARCHITECTURE]}))
    write_processors(folder)


def write_processors(folder: Path) -> None:
    """A tokenizer of one word a token, and what the image processor reads."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(BEGIN_IMAGE)} | MARKS
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    roles = dict(zip(("boi_token", "image_token", "eoi_token"), MARKS, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, extra_special_tokens=roles).save_pretrained(folder)
    settings = {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": SIDE, "width": SIDE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    described = {"processor_class": "Gemma3Processor", "image_seq_length": TOKENS}
    (folder / "processor_config.json").write_text(json.dumps(described))


class VisionReference(SeeingReference):
    """transformers, float32, one request at a time, eager attention."""

    def __init__(self, checkpoint: Path, **images: Any) -> None:
        """images: settings of the image processor."""
        from transformers import Gemma3ForConditionalGeneration

        from tt_hostmesh.vllm.pictures import PictureProcessor

        self._processor = PictureProcessor.from_pretrained(checkpoint)
        self._settings = images
        self.model: Any = Gemma3ForConditionalGeneration.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager"
        )

    def _pictures(self, media: Sequence[Any]) -> Any:
        return self._processor.image_processor(list(media), return_tensors="pt", **self._settings)

    def inputs(self, asked: Asked, answer: Sequence[int] = ()) -> dict[str, torch.Tensor]:
        """The processor's pictures, and the prompt with their tokens in it."""
        images = self._pictures(asked.media) if asked.media else {}
        crops = [int(count) for count in images.get("num_crops", ())]
        ids: list[int] = []
        for token in asked.prompt:
            ids += self._processor.tokens_of(crops.pop(0)) if token == BEGIN_IMAGE else [token]
        tensor = torch.tensor([[*ids, *answer]])
        marked = {"attention_mask": torch.ones_like(tensor), "token_type_ids": (tensor == IMAGE).long()}
        pixels = {"pixel_values": images["pixel_values"]} if asked.media else {}
        return {"input_ids": tensor, **marked, **pixels}


def with_images(requests: Sequence[Asked]) -> tuple[Asked, ...]:
    """Images before, between and behind the text, at the edges of blocks and chunks, and in the common prefix."""
    common = picture(40, 24, seed=8)
    images: dict[int, list[tuple[int, Any]]] = {
        0: [(0, picture(16, 16, seed=0))],
        2: [(55, picture(24, 8, seed=1))],
        4: [(93, picture(56, 64, seed=2))],
        5: [(30, picture(32, 32, seed=3)), (31, picture(8, 40, seed=4)), (31, picture(8, 40, seed=5))],
        7: [(90, picture(64, 64, seed=6)), (255, picture(8, 8, seed=7))],
        **{i: [(58, common)] for i in (8, 9, 10, 11)},
    }
    return tuple(placed(asked, images.get(i, []), [BEGIN_IMAGE]) for i, asked in enumerate(requests))


FAMILY = Family(
    name="gemma3_vl",
    label="Gemma 3 with images: their tokens see one another, in layers with and without a sliding window",
    architecture=ARCHITECTURE,
    target="tt_hostmesh.vllm.gemma3:Gemma3ForConditionalGeneration",
    write=write,
    reference=VisionReference,
    requests=with_images(mixture(BEGIN_IMAGE)),
    prompt=prompt,
    settings=Run({"skip_tokenizer_init": False, "dtype": "float32"}),
    few_blocks=Run(environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "64"}),
)
