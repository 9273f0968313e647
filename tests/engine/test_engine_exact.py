"""vLLM's real engine on the strict software mesh, a tiny model, every way of running a step: exact against
transformers."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parent))

from launch import Engine, Run, launched
from tiny import save_llama, write_bundle

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

VOCABULARY = 320


SIZED = """
from tt_hostmesh.llama.generator import LlamaForCausalLM


class Model(LlamaForCausalLM):
    tt_supported_decode_batch_sizes = (8, 16)

    @classmethod
    def initialize_vllm_model(cls, hf_config, mesh_device, max_batch_size, **keywords):
        if max_batch_size not in cls.tt_supported_decode_batch_sizes:
            raise ValueError(f"cannot be loaded with {max_batch_size} rows")
        return super().initialize_vllm_model(hf_config, mesh_device, max_batch_size, **keywords)
"""
DEVICE = {"sample_on_device_mode": "all"}
FEW_BLOCKS = {"TT_HOST_MAX_TOKENS_ALL_USERS": "512"}
# A process that has computed with torch is forked here: with vLLM before 0.33 the child hangs at its first parallel
# region. `vllm serve` spawns on its own.
SPAWN = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
RUNS = {
    "device sampling, async": Run(tt=DEVICE),
    "device sampling, sync": Run({"async_scheduling": False}, DEVICE),
    "device sampling of decode only": Run(tt={"sample_on_device_mode": "decode_only"}),
    "host sampling, async": Run(),
    "host sampling, sync": Run({"async_scheduling": False}),
    "legacy decode protocol": Run(tt=DEVICE, environ={"TT_HOST_PROTOCOL": "legacy"}),
    "chunks of 96 tokens": Run({"max_num_batched_tokens": 96}, DEVICE),
    "no chunks": Run({"enable_chunked_prefill": False, "max_num_batched_tokens": None}, DEVICE),
    "no prefix cache": Run({"enable_prefix_caching": False}, DEVICE),
    "no traces": Run(tt={**DEVICE, "trace_mode": "none"}),
    "preemption, async": Run({"max_model_len": 384}, DEVICE, FEW_BLOCKS),
    "preemption, sync": Run({"async_scheduling": False, "max_model_len": 384}, DEVICE, FEW_BLOCKS),
    "preemption, host sampling": Run({"max_model_len": 384}, environ=FEW_BLOCKS),
    "12 sequences on a class that knows 8 and 16": Run({"max_num_seqs": 12}, DEVICE),
    "multiprocess executor": Run({"distributed_executor_backend": "mp"}, DEVICE, SPAWN),
    "a class as tt-metal had it in June 2026": Run(
        {"max_num_seqs": 8},
        DEVICE,
        {"TT_HOST_FACE": "june", "TT_MODEL_CLASS_OVERRIDES": "LlamaForCausalLM=tt_hostmesh.presented:Llama"},
    ),
    "priority": Run({"scheduling_policy": "priority"}, DEVICE),
}
ON_EVERY_ROW = {
    "device sampling, async",
    "device sampling, sync",
    "host sampling, async",
    "legacy decode protocol",
    "chunks of 96 tokens",
    "preemption, async",
    "preemption, host sampling",
    "multiprocess executor",
}
"""Ways that every row of the compat matrix shows; the others are shown on the newest and the oldest."""
WAYS = [pytest.param(name, marks=[pytest.mark.every_row] if name in ON_EVERY_ROW else []) for name in RUNS]
USUAL = Run({"max_model_len": 512, "max_num_seqs": 6, "max_num_batched_tokens": 512, "skip_tokenizer_init": True})
OWN_CLASS = {"12 sequences on a class that knows 8 and 16": SIZED}
"""Source of a class `Model` that serves instead of the mesh's Llama."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny-llama"), vocab_size=VOCABULARY)


@dataclass(frozen=True)
class Asked:
    prompt: list[int]
    max_tokens: int
    answer: list[int]


@pytest.fixture(scope="module")
def requests(checkpoint: Path) -> list[Asked]:
    """26 requests of 1 to 260 tokens, some with a common prefix of three blocks, and transformers' greedy answers."""
    import torch
    from transformers import LlamaForCausalLM

    rng = random.Random(3)
    model = LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    shared = [rng.randrange(3, VOCABULARY) for _ in range(192)]
    lengths = (1, 2, 5, 31, 32, 33, 63, 64, 65, 90, 96, 97, 127, 128, 129, 200, 255, 256, 260, 17, 48, 70)
    prompts = [[rng.randrange(3, VOCABULARY) for _ in range(length)] for length in lengths]
    prompts += [[*shared, 9], [*shared, 10, 11], shared, shared + [rng.randrange(3, VOCABULARY) for _ in range(60)]]
    asked = []
    for i, prompt in enumerate(prompts):
        max_tokens = 1 + (11 * i) % 61
        ids = torch.tensor([prompt])
        with torch.no_grad():
            output = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
            )
        asked.append(Asked(prompt, max_tokens, output[0, len(prompt) :].tolist()))
    return asked


@pytest.fixture
def engine(request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path) -> Iterator[tuple[str, Engine]]:
    run = RUNS[request.param].over(USUAL)
    if source := OWN_CLASS.get(request.param):
        run = Run(environ=write_bundle(tmp_path / "bundles", "engine_model", source)).over(run)
    with launched(run, checkpoint, tmp_path) as engine:
        yield request.param, engine


@pytest.mark.parametrize("engine", WAYS, indirect=True)
def test_engine_every_way_of_running_is_exact(engine: tuple[str, Engine], requests: list[Asked]) -> None:
    from vllm import SamplingParams

    name, running = engine
    params = [SamplingParams(temperature=0, max_tokens=asked.max_tokens, detokenize=False) for asked in requests]
    outputs = running.generate([asked.prompt for asked in requests], params)
    wrong = [
        (i, list(output.outputs[0].token_ids), asked.answer)
        for i, (asked, output) in enumerate(zip(requests, outputs, strict=True))
        if list(output.outputs[0].token_ids) != asked.answer
    ]
    assert not wrong
    assert (running.metric("vllm:num_preemptions") > 0) == name.startswith("preemption")
