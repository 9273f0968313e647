"""A latent cache, and experts in groups."""

from __future__ import annotations

from pathlib import Path

from family import TEXT_ONLY, Family, turned_off
from mixture import mixture
from plain_reference import TransformersReference

VOCABULARY = 320


def write(folder: Path) -> None:
    """Three layers, one of them dense. Norms and the bias that chooses experts are not neutral."""
    import torch
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    torch.manual_seed(7)
    config = DeepseekV3Config(
        hidden_size=48,
        intermediate_size=64,
        moe_intermediate_size=24,
        num_hidden_layers=3,
        first_k_dense_replace=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=8,
        n_shared_experts=1,
        n_group=4,
        topk_group=2,
        num_experts_per_tok=3,
        kv_lora_rank=24,
        q_lora_rank=20,
        qk_nope_head_dim=12,
        qk_rope_head_dim=8,
        v_head_dim=10,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        initializer_range=0.3,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        bos_token_id=1,
        eos_token_id=2,
    )
    model = DeepseekV3ForCausalLM(config)
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if "norm" in name:
            weight.data.uniform_(0.6, 1.4)
        elif "correction_bias" in name:
            weight.data.uniform_(-0.3, 0.3)
    model.save_pretrained(folder)


FAMILY = Family(
    name="deepseek_v3",
    label="DeepSeek V3: a latent cache, experts in groups",
    architecture="DeepseekV3ForCausalLM",
    target="tt_hostmesh.deepseek_v3.generator:DeepseekV3ForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    cells={
        "chunks": turned_off("chunked_prefill", "Chunked prefill is not supported"),
        "prefix cache": turned_off("prefix_caching", "Prefix caching is not supported"),
        "async": turned_off("async_scheduling", "does not declare support (supports_async_decode)"),
        "images": TEXT_ONLY,
    },
)
