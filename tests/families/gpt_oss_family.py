"""Experts, attention sinks, a sliding window in every other layer, and a device that answers the best 32 logprobs."""

from __future__ import annotations

from pathlib import Path

from family import TEXT_ONLY, Family, Works, turned_off
from features import same_logprobs
from launch import Run
from mixture import mixture
from plain_reference import TransformersReference
from served import DEVICE, Served

VOCABULARY = 320


def write(folder: Path) -> None:
    """Four layers, two of them with a window of 16 tokens. Sinks and biases are not 0."""
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    torch.manual_seed(7)
    config = GptOssConfig(
        hidden_size=48,
        intermediate_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=6,
        num_experts_per_tok=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        sliding_window=16,
        initializer_range=0.3,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            "truncate": False,
        },
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = GptOssForCausalLM(config)
    for name, weight in model.named_parameters():
        if "sinks" in name or "bias" in name:
            weight.data.uniform_(-0.5, 0.5)
    model.save_pretrained(folder)


def device_logprobs(served: Served) -> None:
    """Eight chips a lane: the five best of every token come from the device, the first token's too."""
    asked = [served.batch[i] for i in (0, 4, 7)]
    before = len(served.engine.steps())
    for one, output in zip(asked, served.generate(asked, logprobs=5), strict=True):
        same_logprobs(served, one, output)
    assert {step["sampled"] for step in served.engine.steps()[before:]} == {"device"}


FAMILY = Family(
    name="gpt_oss",
    label="GPT-OSS: experts, attention sinks, a sliding window in every other layer",
    architecture="GptOssForCausalLM",
    target="tt_hostmesh.gpt_oss.generator:GptOssForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    few_blocks=Run(environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "64"}),
    cells={
        "chunks": turned_off("chunked_prefill", "Chunked prefill is not supported"),
        "prefix cache": turned_off("prefix_caching", "Prefix caching is not supported"),
        "logprobs": Works(device_logprobs, Run(environ={"MESH_DEVICE": "T3K"}).over(DEVICE)),
        "images": TEXT_ONLY,
    },
)
