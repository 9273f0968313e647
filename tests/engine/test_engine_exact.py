"""vLLM's real engine on the strict software mesh, a tiny model, every way of running a step: exact against
transformers."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from tiny import save_llama, write_bundle

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

VOCABULARY = 320


@dataclass(frozen=True)
class Run:
    """One way of running the same requests."""

    engine: dict[str, Any] = field(default_factory=dict)
    tt: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    preempts: bool = False
    model: str = ""  # source of a class `Model` that serves instead of the mesh's Llama


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
RUNS = {
    "device sampling, async": Run(tt=DEVICE),
    "device sampling, sync": Run({"async_scheduling": False}, DEVICE),
    "device sampling of decode only": Run(tt={"sample_on_device_mode": "decode_only"}),
    "host sampling, async": Run(),
    "host sampling, sync": Run({"async_scheduling": False}),
    "legacy decode protocol": Run(tt=DEVICE, environ={"TT_HOST_PROTOCOL": "legacy"}),
    "chunks of 96 tokens": Run({"max_num_batched_tokens": 96}, DEVICE),
    "no chunks": Run({"enable_chunked_prefill": False}, DEVICE),
    "no prefix cache": Run({"enable_prefix_caching": False}, DEVICE),
    "no traces": Run(tt={**DEVICE, "trace_mode": "none"}),
    "preemption, async": Run(
        tt=DEVICE, environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "512"}, preempts=True, engine={"max_model_len": 384}
    ),
    "preemption, sync": Run(
        {"async_scheduling": False, "max_model_len": 384},
        DEVICE,
        {"TT_HOST_MAX_TOKENS_ALL_USERS": "512"},
        preempts=True,
    ),
    "preemption, host sampling": Run(
        environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "512"}, preempts=True, engine={"max_model_len": 384}
    ),
    "12 sequences on a class that knows 8 and 16": Run({"max_num_seqs": 12}, DEVICE, model=SIZED),
    "multiprocess executor": Run({"distributed_executor_backend": "mp"}, DEVICE),
    "a class as tt-metal had it in June 2026": Run(
        {"max_num_seqs": 8},
        DEVICE,
        {"TT_HOST_FACE": "june", "TT_MODEL_CLASS_OVERRIDES": "LlamaForCausalLM=tt_hostmesh.presented:Llama"},
    ),
    "priority": Run({"scheduling_policy": "priority"}, DEVICE),
}


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
def engine(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    run: Run = RUNS[request.param]
    environ = {
        "TT_RUNTIME": "host",
        "TT_HOST_STRICT": "1",
        "TT_HOST_MAX_TOKENS_ALL_USERS": "8192",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "HF_HUB_OFFLINE": "1",
        **run.environ,
    }
    if run.model:
        environ |= write_bundle(tmp_path / "bundles", "engine_model", run.model)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    from vllm import LLM

    settings = {"max_model_len": 512, "max_num_seqs": 6, "max_num_batched_tokens": 512, **run.engine}
    if settings.get("enable_chunked_prefill") is False:
        settings.pop("max_num_batched_tokens")
    llm = LLM(
        str(checkpoint),
        skip_tokenizer_init=True,
        disable_log_stats=False,
        additional_config={"tt": {**run.tt, "step_log": str(tmp_path / "steps.jsonl")}},
        **settings,
    )
    yield run, llm
    if run.engine.get("distributed_executor_backend") == "mp":
        # The mesh is the worker process's. vLLM's last step in this one asks torch for an accelerator and finds none.
        with pytest.raises(RuntimeError, match="accelerator"):
            llm.llm_engine.engine_core.shutdown()
    else:
        llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()


@pytest.mark.parametrize("engine", RUNS, indirect=True)
def test_engine_every_way_of_running_is_exact(engine: Any, requests: list[Asked]) -> None:
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    run, llm = engine
    prompts = [TokensPrompt(prompt_token_ids=asked.prompt) for asked in requests]
    params = [SamplingParams(temperature=0, max_tokens=asked.max_tokens, detokenize=False) for asked in requests]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    wrong = [
        (i, list(output.outputs[0].token_ids), asked.answer)
        for i, (asked, output) in enumerate(zip(requests, outputs, strict=True))
        if list(output.outputs[0].token_ids) != asked.answer
    ]
    assert not wrong
    preemptions = sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions")
    assert (preemptions > 0) == run.preempts
