"""Sampling in vLLM's real engine on the software mesh: which sampler works, and what a lost mask does."""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from tiny import save_llama

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

VOCABULARY = 320


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama of two layers."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    return str(save_llama(folder, vocab_size=VOCABULARY, layers=2, positions=256, seed=11))


class Engine:
    """vLLM's engine in this process. `steps`: what the step log says of the steps so far."""

    def __init__(self, llm: Any, log: Path) -> None:
        self.llm = llm
        self._log = log

    @property
    def worker(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker

    def steps(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if "phase" in line]

    def generate(self, prompts: list[list[int]], *params: dict[str, Any]) -> list[Any]:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        asked = [SamplingParams(**{"temperature": 0, "max_tokens": 6, **one}) for one in params]
        given = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        return [output.outputs[0] for output in self.llm.generate(given, asked, use_tqdm=False)]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """start(model, tt options, environ, **engine arguments): an engine that ends with the test."""
    running: list[Any] = []

    def start(model: str, tt: dict[str, Any], environ: dict[str, str] | None = None, **more: Any) -> Engine:
        host = {"TT_RUNTIME": "host", "TT_HOST_STRICT": "1", "TT_HOST_MAX_TOKENS_ALL_USERS": "4096"}
        offline = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
        for name, value in {**host, **offline, **(environ or {})}.items():
            monkeypatch.setenv(name, value)
        from vllm import LLM

        log = tmp_path / "steps.jsonl"
        settings = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 256, **more}
        running.append(LLM(model, additional_config={"tt": {**tt, "step_log": str(log)}}, **settings))
        return Engine(running[-1], log)

    yield start
    for llm in running:
        llm.llm_engine.engine_core.shutdown()
    running.clear()
    gc.collect()


@contextmanager
def calls_of_vllms_sampler() -> Iterator[Counter[str]]:
    """Counts calls of vLLM's `Sampler` module, wherever it was made."""
    from torch.nn.modules.module import register_module_forward_hook
    from vllm.v1.sample.sampler import Sampler

    counts: Counter[str] = Counter()

    def count(module: Any, *_: Any) -> None:
        if isinstance(module, Sampler):
            counts["calls"] += 1

    handle = register_module_forward_hook(count)
    try:
        yield counts
    finally:
        handle.remove()


PROMPTS = [[5, 6, 7], [9] * 40, [11, 12], [13, 14, 15, 16]]
ASKED: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 5, "top_p": 0.9},
    {"logprobs": 2, "repetition_penalty": 1.2},
    {"logit_bias": {7: 3.0}, "min_tokens": 2},
]


@pytest.mark.parametrize("compat", [True, False])
def test_engine_always_compat_sampling_sends_every_batch_through_vllms_sampler(
    tiny: str, start: Callable[..., Engine], compat: bool
) -> None:
    """Greedy batches too, and although the device could sample them. Without the option none goes there."""
    tt = {"always_compat_sampling": compat, "sample_on_device_mode": "all"}
    engine = start(tiny, tt, skip_tokenizer_init=True)
    with calls_of_vllms_sampler() as sampler:
        plain = {**ASKED[0], "detokenize": False}
        engine.generate(PROMPTS[:1], plain)
        engine.generate(PROMPTS, *({**asked, "detokenize": False} for asked in ASKED))
    sampled = [step["sampled"] for step in engine.steps() if step["sampled"]]
    assert len(sampled) >= 12
    assert sampler["calls"] == (len(sampled) if compat else 0)
    assert set(sampled) == ({"host"} if compat else {"device", "host"})


def test_engine_a_structured_request_without_a_mask_fails_alone(start: Callable[..., Engine]) -> None:
    """The mask is lost on its way to the worker: its request ends with an error, the others and the engine go on."""
    from vllm.sampling_params import StructuredOutputsParams

    from tt_hostmesh.checkpoint import ensure

    engine = start(str(ensure()), {"sample_on_device_mode": "all"}, environ={"TT_HOST_STRICT": "0"})
    if not getattr(engine.worker.scheduler_config.get_scheduler_cls(), "ends_failed_requests", False):
        pytest.skip("this scheduler cannot end one request")
    worker, through = engine.worker, engine.worker.sample_tokens
    digits = {"structured_outputs": StructuredOutputsParams(regex="[0-9]{12}"), "max_tokens": 12}
    prompts = [[504, 3575, 282], [33, 44, 55, 66], [504, 3575, 282]]
    alone = engine.generate(prompts[1:2], {})[0]
    steps = iter(range(1000))
    worker.sample_tokens = lambda grammar: through(grammar if next(steps) < 3 else None)
    structured, plain, other = engine.generate(prompts, digits, {}, {"max_tokens": 3})
    assert structured.finish_reason == "error"
    assert len(structured.token_ids) < 12
    assert plain.token_ids == alone.token_ids
    assert (plain.finish_reason, other.finish_reason) == ("length", "length")
    worker.sample_tokens = through
    assert engine.generate(prompts[:1], digits)[0].text.isdecimal()


def logprobs_of(output: Any) -> list[float]:
    """The logprob of each token of an answer."""
    return [entry[token].logprob for entry, token in zip(output.logprobs, output.token_ids, strict=True)]


def test_engine_logprobs_of_the_sampled_token_come_from_a_device_that_computes_them(
    tiny: str, start: Callable[..., Engine]
) -> None:
    """Eight chips a lane, logprobs=0: nothing goes to the host, the first token has its logprob, and the numbers are
    those of the host's sampler."""
    ask = [{"logprobs": 0, "detokenize": False}, {"detokenize": False}, {"logprobs": 0, "detokenize": False}]
    device = start(tiny, {"sample_on_device_mode": "all"}, {"MESH_DEVICE": "T3K"}, skip_tokenizer_init=True)
    found = device.generate(PROMPTS[:3], *ask)
    assert {step["sampled"] for step in device.steps() if step["sampled"]} == {"device"}
    # Top lists are not computed there: this batch goes to the host, and gives the numbers to compare with.
    expected = device.generate(PROMPTS[:3], *({**one, "logprobs": 1} for one in ask))
    assert device.steps()[-1]["because"] == ["TOP_LOGPROBS"]
    for i in (0, 2):
        assert found[i].token_ids == expected[i].token_ids
        assert logprobs_of(found[i]) == pytest.approx(logprobs_of(expected[i]), abs=1e-4)
        assert all(
            entry[token].rank in (1, -1) for entry, token in zip(found[i].logprobs, found[i].token_ids, strict=True)
        )
    assert found[1].logprobs is None


def test_engine_a_seeded_answer_depends_on_its_seed_alone(tiny: str, start: Callable[..., Engine]) -> None:
    """Alone, and beside requests that come and go and need the host. With seeded_on_host off the device draws."""
    seeded = {"temperature": 1.3, "top_k": 30, "seed": 2**40 + 1, "max_tokens": 12, "detokenize": False}
    others = [{"logit_bias": {7: 3.0}, "max_tokens": 3}, {}, {"temperature": 1.0, "top_k": 9, "max_tokens": 8}]
    engine = start(tiny, {"sample_on_device_mode": "all"}, skip_tokenizer_init=True)
    alone = engine.generate(PROMPTS[:1], seeded)[0].token_ids
    assert {tuple(step["because"]) for step in engine.steps()} == {("SEED",)}
    beside = engine.generate(PROMPTS, seeded, *({**other, "detokenize": False} for other in others))[0].token_ids
    assert beside == alone
    assert engine.generate(PROMPTS[:1], {**seeded, "seed": -5})[0].token_ids != alone


def test_engine_seeds_may_be_left_to_the_device(tiny: str, start: Callable[..., Engine]) -> None:
    seeded = {"temperature": 1.3, "top_k": 30, "seed": 5, "max_tokens": 8, "detokenize": False}
    engine = start(tiny, {"sample_on_device_mode": "all", "seeded_on_host": False}, skip_tokenizer_init=True)
    answers = [engine.generate(PROMPTS[:1], seeded)[0].token_ids for _ in range(2)]
    assert answers[0] == answers[1]
    assert {step["sampled"] for step in engine.steps() if step["sampled"]} == {"device"}
