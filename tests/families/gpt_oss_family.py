"""Experts, attention sinks, a sliding window in every other layer, and a device that answers the best 32 logprobs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tt-hostmesh" / "tests"))

from family import TEXT_ONLY, Family, Works, turned_off
from features import same_logprobs
from launch import Run
from layered_checkpoints import VOCABULARY, write_gpt_oss
from mixture import mixture
from plain_reference import TransformersReference
from served import DEVICE, Served


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
    write=write_gpt_oss,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    few_blocks=Run({"max_num_seqs": 5}, environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "1"}),
    cells={
        "chunks": turned_off("chunked_prefill", "Chunked prefill is not supported"),
        "prefix cache": turned_off("prefix_caching", "Prefix caching is not supported"),
        "logprobs": Works(device_logprobs, Run(environ={"MESH_DEVICE": "T3K"}).over(DEVICE)),
        "lanes": Works(run=Run({"data_parallel_size": 2, "max_num_seqs": 4}, {}, {"MESH_DEVICE": "N300"}).over(DEVICE)),
        "images": TEXT_ONLY,
    },
)
