"""Adaptive block output: a block for a lone row, single tokens for a batch."""

from __future__ import annotations

from pathlib import Path

from block_family import HOST_SAMPLING, LOGPROBS, MODULE, PROMPTS, REQUESTS, WIDTH, served_by
from family import TEXT_ONLY, Family, Refused, Works
from launch import Run
from llama_family import write
from plain_reference import TransformersReference
from served import Served


def decode(served: Served) -> None:
    """Steps of both widths, by how many requests are in them, and every token is the reference's."""
    assert served.batch
    served.exact([served.batch[4]])
    steps = [step for step in served.engine.steps() if step["phase"] == "decode"]
    assert max(step["requests"] for step in steps) > 4
    assert all(step["emitted"] == step["requests"] for step in steps if step["requests"] > 1)
    assert {step["emitted"] for step in steps if step["requests"] == 1} >= {WIDTH}


FAMILY = Family(
    name="adaptive_block",
    label="Block output, adaptive (MTP, DFlash): a block for a lone request, a token each for several",
    architecture="LlamaForCausalLM",
    target=f"{MODULE}:AdaptiveBlockLlamaForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=REQUESTS,
    settings=served_by("AdaptiveBlockLlamaForCausalLM"),
    cells={
        "decode": Works(decode),
        "chunks": PROMPTS,
        "prefix cache": PROMPTS,
        "lanes": Refused(
            "block_engines",
            "--data-parallel-size 2 is not supported",
            run=Run(
                {"data_parallel_size": 2},
                environ={
                    "MESH_DEVICE": "N300",
                    "TT_MODEL_CLASS_OVERRIDES": "",
                    "EXTRA_MODELS_DIR": str(Path(__file__).parent / "bundles"),
                },
            ),
        ),
        "host sampling": HOST_SAMPLING,
        "logprobs": LOGPROBS,
        "images": TEXT_ONLY,
    },
)
