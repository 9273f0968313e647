"""Qwen 3.5 as its checkpoints come, with a vision tower and M-RoPE: text in batches, as tt-metal's class serves it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
sys.path.insert(0, str(Path(__file__).parent))

from launch import Run, launched
from mixture import mixture, on_device

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

VOCABULARY = 320


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A random checkpoint and transformers' model of it. The architecture has the prefix: vLLM's own class of the bare
    name cannot be inspected without torchvision."""
    import torch
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    folder = tmp_path_factory.mktemp("tiny-qwen3_5")
    torch.manual_seed(6)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "full_attention_interval": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "initializer_range": 0.3,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_parameters": {**rope, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
    }
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 64}
    ids = {f"{name}_token_id": 300 + i for i, name in enumerate(("image", "video", "vision_start", "vision_end"))}
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision, **ids)).eval()
    model.save_pretrained(folder)
    described = folder / "config.json"
    changed = {**json.loads(described.read_text()), "architectures": ["TTQwen3_5ForConditionalGeneration"]}
    described.write_text(json.dumps(changed))
    return folder, model


def test_engine_qwen3_5_with_mrope_is_exact_under_preemption(qwen: tuple[Path, Any], tmp_path: Path) -> None:
    """Fails when the answer of a prefill is taken without its deltas, or a layer too many gets a cache."""
    import torch
    from vllm import SamplingParams

    folder, model = qwen
    asked = on_device(mixture(300))
    run = Run(
        {"max_model_len": 384, "max_num_seqs": 8, "max_num_batched_tokens": 96, "skip_tokenizer_init": True},
        {"sample_on_device_mode": "all"},
        {"TT_HOST_MAX_TOKENS_ALL_USERS": "512"},
    )
    with launched(run, folder, tmp_path) as engine:
        assert engine.config.model_config.uses_mrope
        params = [
            SamplingParams(temperature=0, max_tokens=one.max_tokens, ignore_eos=True, detokenize=False) for one in asked
        ]
        outputs = engine.generate([one.prompt for one in asked], params)
        assert engine.metric("vllm:num_preemptions") > 0
    for one, output in zip(asked, outputs, strict=True):
        ids = torch.tensor([one.prompt])
        for _ in range(one.max_tokens):
            with torch.no_grad():
                ids = torch.cat([ids, model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
        assert list(output.outputs[0].token_ids) == ids[0, len(one.prompt) :].tolist()
