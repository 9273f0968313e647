"""Adaptive block output in vLLM's real engine: requests come, go and are preempted at random, in flight or not."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parent))

from launch import Engine, Run, launched
from tiny import save_llama

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

VOCABULARY = 320
CONTEXT = 384
ADAPTIVE = "LlamaForCausalLM=tt_hostmesh.blocks.generator:AdaptiveBlockLlamaForCausalLM"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny-llama"), vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)

    def greedy(prompt: list[int], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
            )
        return out[0, len(prompt) :].tolist()

    return greedy


@pytest.fixture(params=["async", "sync"])
def engine(request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path) -> Iterator[Engine]:
    run = Run(
        {
            "max_model_len": CONTEXT,
            "max_num_seqs": 6,
            "skip_tokenizer_init": True,
            "async_scheduling": request.param == "async",
        },
        {"sample_on_device_mode": "all"},
        {"TT_MODEL_CLASS_OVERRIDES": ADAPTIVE, "TT_HOST_MAX_TOKENS_ALL_USERS": "128"},
    )
    with launched(run, checkpoint, tmp_path) as engine:
        yield engine


def test_engine_adaptive_blocks_are_exact_whatever_comes_and_goes(engine: Engine, reference: Any) -> None:
    """Waves of one to six requests, with stop tokens and aborts. Fails when what is in flight is counted as one token,
    a block is taken for another request's, or a request that ends in flight is scheduled beyond its end."""
    from vllm import SamplingParams

    rng = random.Random(11)
    core = engine.engine
    asked: dict[str, tuple[list[int], int, int | None]] = {}
    answers: dict[str, list[int]] = {}
    aborted: set[str] = set()
    for wave in range(14):
        for i in range(rng.choice([1, 1, 2, 6, 6])):
            prompt = [rng.randrange(3, VOCABULARY) for _ in range(rng.choice([1, 30, 40, 40, 40, 100, 210]))]
            count = rng.choice([1, 2, 7, 8, 9, 17, 96, 96])
            stop = None if rng.random() < 0.6 else reference(prompt, 12)[-1]
            name = f"{wave}-{i}"
            params = SamplingParams(
                temperature=0, max_tokens=count, detokenize=False, stop_token_ids=None if stop is None else [stop]
            )
            core.add_request(name, {"prompt_token_ids": prompt}, params)
            asked[name] = (prompt, count, stop)
        for _ in range(rng.choice([0, 1, 5, 400])):
            if not core.has_unfinished_requests():
                break
            answers.update({out.request_id: list(out.outputs[0].token_ids) for out in core.step() if out.finished})
        alive = sorted(asked.keys() - answers.keys() - aborted)
        if alive and rng.random() < 0.3:
            aborted.add(rng.choice(alive))
            core.abort_request(sorted(aborted & set(alive)))
    while core.has_unfinished_requests():
        answers.update({out.request_id: list(out.outputs[0].token_ids) for out in core.step() if out.finished})
    assert asked.keys() - answers.keys() <= aborted
    for name in answers.keys() - aborted:
        prompt, count, stop = asked[name]
        expected = reference(prompt, count)
        if stop in expected:
            expected = expected[: expected.index(stop) + 1]
        assert answers[name] == expected, name
    assert engine.metric("vllm:num_preemptions") > 0
    emitted = {(step["requests"], step["emitted"]) for step in engine.steps() if step["phase"] == "decode"}
    assert (1, 8) in emitted
    assert max(requests for requests, _ in emitted) > 3
