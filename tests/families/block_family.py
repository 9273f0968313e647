"""Plain block output: one request, a whole block of tokens a step."""

from __future__ import annotations

from family import TEXT_ONLY, Asked, Family, NotApplicable, Refused, Works
from launch import Run
from llama_family import VOCABULARY, write
from mixture import mixture, on_device
from plain_reference import TransformersReference
from served import Served

WIDTH = 8
MODULE = "tt_hostmesh.blocks.generator"
REQUESTS = on_device(mixture(VOCABULARY))
PROMPTS = Refused("block_prompts", "Turning prefix caching and chunked prefill off", how="turned off")
LOGPROBS = Refused(
    "a request for logprobs",
    "logprobs=1 is not supported",
    how="request",
    request=Asked([5, 6], 8, params={"logprobs": 1}),
)
HOST_SAMPLING = Refused(
    "block_sampling", "sample_on_device_mode=None is not supported", run=Run(tt={"sample_on_device_mode": None})
)


def decode(served: Served) -> None:
    """Every step answers with a block, and every token is the reference's."""
    assert served.batch
    steps = [step for step in served.engine.steps() if step["phase"] == "decode"]
    assert {step["emitted"] for step in steps} == {WIDTH}


def served_by(name: str) -> Run:
    return Run(environ={"TT_MODEL_CLASS_OVERRIDES": f"LlamaForCausalLM={MODULE}:{name}"})


FAMILY = Family(
    name="block",
    label="Block output, plain (DiffusionGemma): a block of tokens every step",
    architecture="LlamaForCausalLM",
    target=f"{MODULE}:BlockLlamaForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=REQUESTS,
    settings=served_by("BlockLlamaForCausalLM"),
    cells={
        "decode": Works(decode),
        "chunks": PROMPTS,
        "prefix cache": PROMPTS,
        "async": Refused("block_async", "Turning async scheduling off", how="turned off"),
        "preempt/resume": NotApplicable("one request at a time: nobody takes another's blocks"),
        "lanes": Refused(
            "block_engines",
            "--data-parallel-size 2 is not supported",
            run=Run({"data_parallel_size": 2}, environ={"MESH_DEVICE": "N300"}),
        ),
        "host sampling": HOST_SAMPLING,
        "logprobs": LOGPROBS,
        "images": TEXT_ONLY,
    },
)
