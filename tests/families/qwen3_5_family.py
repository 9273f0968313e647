"""Recurrent layers, whose state lives in slots, beside full attention."""

from __future__ import annotations

import json
from pathlib import Path

from family import TEXT_ONLY, Family, Refused
from mixture import mixture
from plain_reference import TransformersReference

VOCABULARY = 320
ARCHITECTURE = "TTQwen3_5ForCausalLM"
"""With the prefix: vLLM's own class of the bare name cannot be inspected without torchvision."""


def write(folder: Path, *, seed: int = 5, positions: int = 512) -> None:
    """Four layers, every second of full attention, twice as many value heads as key heads."""
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(seed)
    config = Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        full_attention_interval=2,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        initializer_range=0.3,
        max_position_embeddings=positions,
        bos_token_id=1,
        eos_token_id=2,
    )
    Qwen3_5ForCausalLM(config).save_pretrained(folder)
    described = folder / "config.json"
    described.write_text(json.dumps({**json.loads(described.read_text()), "architectures": [ARCHITECTURE]}))


FAMILY = Family(
    name="qwen3_5",
    label="Qwen 3.5 and 3.6, text: gated delta rule layers, state by slot",
    architecture=ARCHITECTURE,
    target="tt_hostmesh.qwen3_5.generator:Qwen35ForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    cells={
        "prefix cache": Refused("prefix_caching", "Prefix caching is not supported in TT backend", how="turned off"),
        "images": TEXT_ONLY,
    },
)
