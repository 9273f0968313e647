"""Text and images: a vision tower whose layers speak to the first layers of the decoder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from family import Family
from launch import Run
from mixture import mixture
from pictures import prompt
from qwen2_5_vl_family import END, IMAGE, MERGE, PATCH, START, VIDEO, VOCABULARY, with_images, write_processors
from qwen2_5_vl_family import VisionReference as ReferenceOfQwen

ARCHITECTURE = "TTQwen3VLForConditionalGeneration"
"""With the prefix: vLLM's own class of the bare name cannot be inspected without torchvision."""


def write(folder: Path, *, seed: int = 11, positions: int = 512) -> None:
    """The decoder's first two layers get something of two layers of the tower. The marks of images are never
    generated."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(seed)
    text = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": positions,
        "initializer_range": 0.3,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
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
        "out_hidden_size": 64,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": [0, 1],
        "initializer_range": 0.3,
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    model = Qwen3VLForConditionalGeneration(config)
    for name, tensor in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            tensor.data += torch.empty_like(tensor).uniform_(-0.3, 0.3)
    with torch.no_grad():
        model.lm_head.weight[START:] = 0
    model.save_pretrained(folder)
    described = folder / "config.json"
    described.write_text(json.dumps({**json.loads(described.read_text()), "architectures": [ARCHITECTURE]}))
    write_processors(folder)


class VisionReference(ReferenceOfQwen):
    """The same way for this model."""

    MODEL = "Qwen3VLForConditionalGeneration"


FAMILY = Family(
    name="qwen3_vl",
    label="Qwen 3-VL: the vision tower's layers speak to the first layers of the decoder",
    architecture=ARCHITECTURE,
    target="tt_hostmesh.vllm.qwen3_vl:Qwen3VLForConditionalGeneration",
    write=write,
    reference=VisionReference,
    requests=with_images(mixture(START)),
    prompt=prompt,
    settings=Run({"skip_tokenizer_init": False, "dtype": "float32"}),
)
