"""Text and images: a vision tower, and rotary positions in three axes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from family import Asked, Family
from launch import Run
from mixture import mixture
from pictures import SeeingReference, picture, placed, prompt

VOCABULARY = 320
ARCHITECTURE = "TTQwen2_5_VLForConditionalGeneration"
"""With the prefix: vLLM's own class of the bare name cannot be inspected without torchvision."""
START, IMAGE, VIDEO, END = 316, 317, 318, 319
MARKS = {"<|vision_start|>": START, "<|image_pad|>": IMAGE, "<|video_pad|>": VIDEO, "<|vision_end|>": END}
PATCH, MERGE = 4, 2
MOST_TOKENS = 64
"""Of one image: it must fit into a chunk."""


def write(folder: Path, *, seed: int = 11, positions: int = 512) -> None:
    """Windows of two by two tokens in two layers of three. The marks of images are never generated."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(seed)
    text = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": positions,
        "initializer_range": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "window_size": 2 * PATCH * MERGE,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "initializer_range": 0.3,
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    with torch.no_grad():
        model.lm_head.weight[START:] = 0
    model.save_pretrained(folder)
    described = folder / "config.json"
    described.write_text(json.dumps({**json.loads(described.read_text()), "architectures": [ARCHITECTURE]}))
    write_processors(folder)


def write_processors(folder: Path) -> None:
    """A tokenizer of one word a token, and what the image processor reads."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(START)} | MARKS
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=list(MARKS)).save_pretrained(folder)
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "min_pixels": (PATCH * MERGE) ** 2,
        "max_pixels": MOST_TOKENS * (PATCH * MERGE) ** 2,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


class VisionReference(SeeingReference):
    """transformers, float32, one request at a time, eager attention."""

    MODEL = "Qwen2_5_VLForConditionalGeneration"

    def __init__(self, checkpoint: Path) -> None:
        import transformers

        from tt_hostmesh.vllm.images import ImageProcessor

        self._images: Any = ImageProcessor.from_pretrained(checkpoint).image_processor
        self.model: Any = getattr(transformers, self.MODEL).from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager"
        )

    def inputs(self, asked: Asked, answer: Sequence[int] = ()) -> dict[str, torch.Tensor]:
        """The processor's images, and the prompt with as many placeholders as each has tokens."""
        images = self._images(list(asked.media), return_tensors="pt") if asked.media else {}
        counts = [int(grid.prod()) // MERGE**2 for grid in images.get("image_grid_thw", ())]
        ids: list[int] = []
        for token in asked.prompt:
            ids += [token] * counts.pop(0) if token == IMAGE else [token]
        tensor = torch.tensor([[*ids, *answer]])
        marked = {"attention_mask": torch.ones_like(tensor), "mm_token_type_ids": (tensor == IMAGE).int()}
        return {"input_ids": tensor, **marked, **images}


def with_images(requests: Sequence[Asked]) -> tuple[Asked, ...]:
    """Images before, between and behind the text, at the edges of blocks and chunks, and in the common prefix; a token
    for each 8 x 8 pixels."""
    common = picture(40, 24, seed=8)
    images: dict[int, list[tuple[int, Any]]] = {
        0: [(0, picture(16, 16, seed=0))],
        2: [(62, picture(24, 8, seed=1))],
        4: [(93, picture(56, 64, seed=2))],
        5: [(30, picture(32, 32, seed=3)), (31, picture(8, 40, seed=4))],
        7: [(90, picture(64, 64, seed=5)), (255, picture(8, 8, seed=6))],
        **{i: [(10, common)] for i in (8, 9, 10, 11)},
    }
    return tuple(placed(asked, images.get(i, []), [START, IMAGE, END]) for i, asked in enumerate(requests))


FAMILY = Family(
    name="qwen2_5_vl",
    label="Qwen 2.5-VL: images, rotary positions in three axes",
    architecture=ARCHITECTURE,
    target="tt_hostmesh.vllm.qwen2_5_vl:Qwen2_5_VLForConditionalGeneration",
    write=write,
    reference=VisionReference,
    requests=with_images(mixture(START)),
    prompt=prompt,
    settings=Run({"skip_tokenizer_init": False, "dtype": "float32"}),
)
