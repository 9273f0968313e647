"""Sliding and full attention by turns: two KV cache groups in one pool."""

from __future__ import annotations

from pathlib import Path

from family import TEXT_ONLY, Family
from launch import Run
from mixture import mixture
from plain_reference import TransformersReference

VOCABULARY = 320


def write(folder: Path, *, window: int = 72, positions: int = 512) -> None:
    """Five layers with a window, one without. Nothing of the norms is left at its neutral value."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(7)
    config = Gemma3TextConfig(
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=VOCABULARY,
        max_position_embeddings=positions,
        sliding_window=window,
        query_pre_attn_scalar=24,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = Gemma3ForCausalLM(config)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data.uniform_(-0.3, 0.3)
    model.save_pretrained(folder)


FAMILY = Family(
    name="gemma3",
    label="Gemma 3 and 4: five layers with a sliding window for each without",
    architecture="Gemma3ForCausalLM",
    target="tt_hostmesh.gemma3.generator:Gemma3ForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    few_blocks=Run(environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "64"}),
    cells={"images": TEXT_ONLY},
)
