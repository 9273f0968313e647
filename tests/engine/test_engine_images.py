"""Images for a class as tt-metal has it: whole prompts only, nothing cached, and rope deltas back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parents[1] / "families"))

from family import Asked
from launch import Run, launched
from qwen2_5_vl_family import ARCHITECTURE, END, IMAGE, START, VisionReference, picture, prompt, write
from tiny import write_bundle

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

SOURCE = """
from tt_hostmesh.vllm.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration


class Model(Qwen2_5_VLForConditionalGeneration):
    model_capabilities = {"supports_async_decode": True, "supports_sample_on_device": True, "max_device_top_k": 32}

    def prefill_forward(self, tokens, page_table, kv_cache, prompt_lens, **kwargs):
        if any(int(start) for start in kwargs.pop("start_pos")):
            raise AssertionError("prefix caching and chunks are not supported")
        return super().prefill_forward(tokens, page_table, kv_cache, prompt_lens, **kwargs)
"""


def asked(i: int) -> Asked:
    """Two images of 56 and 64 tokens and some text: three of them fill a prefill step."""
    tokens = [3 + (7 * i + k) % 300 for k in range(10 + i)]
    images = (picture(56, 64, seed=40 + i), picture(64, 64, seed=80 + i))
    return Asked([*tokens, START, IMAGE, END, *tokens[:3], START, IMAGE, END], 9 + 2 * i, images)


def test_engine_images_do_not_wait_for_an_encoder_cache(tmp_path: Path) -> None:
    """vLLM gives the images of running requests as much room as one step has tokens, and ends a chunk before one that
    has none, also where prompts may not be split. Two steps are in flight, so there are more. Fails without the rule
    `encoder_room`."""
    from vllm import SamplingParams

    model = tmp_path / "model"
    model.mkdir()
    write(model)
    bundle = write_bundle(tmp_path / "bundles", "whole_prompts", SOURCE, arch=ARCHITECTURE)
    run = Run(
        {"max_model_len": 384, "max_num_seqs": 8, "max_num_batched_tokens": 400, "dtype": "float32"},
        {"sample_on_device_mode": "all"},
        bundle,
    )
    requests = [asked(i) for i in range(10)]
    with launched(run, model, tmp_path) as engine:
        assert not engine.config.scheduler_config.enable_chunked_prefill
        assert not engine.config.cache_config.enable_prefix_caching
        assert engine.config.scheduler_config.async_scheduling
        params = [SamplingParams(temperature=0, max_tokens=one.max_tokens, detokenize=False) for one in requests]
        outputs = engine.generate([prompt(one) for one in requests], params)
        steps = engine.steps()
    reference = VisionReference(model)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [reference.answer(one) for one in requests]
    assert all(step["sampled"] == "device" for step in steps)
    assert max(step["requests"] for step in steps if step["phase"] == "prefill") > 1
