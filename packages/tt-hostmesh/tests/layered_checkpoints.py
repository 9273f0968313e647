"""Small random checkpoints of models whose layers differ. Nothing of them is left at a value that changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 320
BEGIN_IMAGE, IMAGE, END_IMAGE = 316, 317, 318
"""Of models with images: no prompt has them but for images, and none is generated."""

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}

COMMON = {
    "hidden_size": 48,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

NEUTRAL_AT = {
    "norm": (-0.3, 0.3),
    "layer_scalar": (-0.3, 0.2),
    "sinks": (-0.5, 0.5),
    "bias": (-0.4, 0.4),
    "projection_weight": (-0.6, 0.6),
}
"""Parts of names, and what is added to tensors that transformers starts at 0 or 1."""


def write_gemma3(folder: Path, *, window: int = 72, positions: int = 512) -> None:
    """Five layers with a window, one without."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    own: dict[str, Any] = {"intermediate_size": 64, "num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 16}
    scale = {"sliding_window": window, "query_pre_attn_scalar": 2, "max_position_embeddings": positions}
    _save(folder, Gemma3ForCausalLM, Gemma3TextConfig(**COMMON, **own, **scale))


def write_gemma3_with_images(
    folder: Path, *, window: int = 72, positions: int = 512, side: int = 32, tokens: int = 16
) -> None:
    """The same with a vision tower. side: of a picture, pixels, four of them a patch; tokens: of a picture."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    own: dict[str, Any] = {"intermediate_size": 64, "num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 16}
    scale = {"sliding_window": window, "query_pre_attn_scalar": 2, "max_position_embeddings": positions}
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = Gemma3Config(
        text_config={**COMMON, **own, **scale},
        vision_config={**vision, "image_size": side, "patch_size": 4},
        mm_tokens_per_image=tokens,
        boi_token_index=BEGIN_IMAGE,
        image_token_index=IMAGE,
        eoi_token_index=END_IMAGE,
        initializer_range=0.3,
    )
    _save(folder, Gemma3ForConditionalGeneration, config, silent=range(BEGIN_IMAGE, END_IMAGE + 1))


def write_gemma4(folder: Path, *, window: int = 72, positions: int = 512) -> None:
    """Five layers with a window, one without, which has one head, twice as wide, and no values but its keys."""
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig

    own: dict[str, Any] = {"intermediate_size": 64, "num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 16}
    full = {"global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True}
    none: dict[str, Any] = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCABULARY}
    reach = {"sliding_window": window, "max_position_embeddings": positions, "final_logit_softcapping": 8.0}
    _save(folder, Gemma4ForCausalLM, Gemma4TextConfig(**COMMON, **own, **full, **none, **reach))


def write_gpt_oss(folder: Path, *, window: int = 16, positions: int = 512) -> None:
    """Four layers, every other one with a window."""
    from transformers import GptOssConfig, GptOssForCausalLM

    own: dict[str, Any] = {"intermediate_size": 32, "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16}
    experts = {"num_local_experts": 6, "num_experts_per_tok": 2}
    reach = {
        "sliding_window": window,
        "max_position_embeddings": positions,
        "rope_parameters": {**YARN, "truncate": False},
    }
    _save(folder, GptOssForCausalLM, GptOssConfig(**COMMON, **own, **experts, **reach))


def write_deepseek_v3(folder: Path, *, positions: int = 512) -> None:
    """Three layers, the first one dense; of four groups of experts two are chosen."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    experts = {"n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3}
    sizes = {"intermediate_size": 64, "moe_intermediate_size": 24, "num_hidden_layers": 3, "first_k_dense_replace": 1}
    latent = {"kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
    reach = {
        "num_key_value_heads": 4,
        "max_position_embeddings": positions,
        "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    }
    _save(folder, DeepseekV3ForCausalLM, DeepseekV3Config(**COMMON, **experts, **sizes, **latent, **reach))


MIXED = (-2.5, 0.5)
"""Added to the last norm of a model whose head is its embedding: with a norm near 1 it says its last token for ever."""


def _save(folder: Path, model_class: Any, config: Any, silent: range = range(0)) -> None:
    """silent: tokens that are never the likeliest."""
    import torch

    torch.manual_seed(7)
    model = model_class(config)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        for part, between in NEUTRAL_AT.items():
            if part in name and tensor.is_floating_point():
                tensor.data += torch.empty_like(tensor).uniform_(*between)
        if name.endswith(".norm.weight") and config.get_text_config().tie_word_embeddings:
            tensor.data += torch.empty_like(tensor).uniform_(*MIXED)
    model.get_output_embeddings().weight.data[silent.start : silent.stop] = 0
    model.save_pretrained(folder)
