"""A model that embeds, through vLLM's pooling API: in this process, and over HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parent))

from launch import HOST

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

VOCABULARY = 200
LENGTHS = (1, 5, 33, 64, 127, 12, 90)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A random BERT with a tokenizer of one word a token, and transformers' model of it."""
    import torch
    from transformers import BertConfig, BertModel

    from tt_hostmesh.synthetic.checkpoint import tokenizer

    folder = tmp_path_factory.mktemp("tiny-bert")
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
        initializer_range=0.3,
        architectures=["BertModel"],
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(VOCABULARY)))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder, model


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    import random

    rng = random.Random(1)
    return [[rng.randrange(VOCABULARY) for _ in range(length)] for length in LENGTHS]


def expected(model: Any, prompt: list[int]) -> list[float]:
    """Of length 1, from the first token, as vLLM pools BERT."""
    import torch

    with torch.no_grad():
        first = model(torch.tensor([prompt])).last_hidden_state[0, 0]
    return torch.nn.functional.normalize(first, dim=-1).tolist()


def test_engine_embeddings_are_those_of_transformers(
    bert: tuple[Path, Any], prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """More prompts than rows, in batches; what was asked raw comes raw."""
    for name, value in HOST.items():
        monkeypatch.setenv(name, value)
    from vllm import LLM, PoolingParams
    from vllm.inputs import TokensPrompt

    folder, model = bert
    log = tmp_path / "steps.jsonl"
    llm = LLM(str(folder), max_num_seqs=4, additional_config={"tt": {"step_log": str(log)}})
    try:
        asked = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        outputs = llm.embed(asked, use_tqdm=False)
        for prompt, output in zip(prompts, outputs, strict=True):
            assert output.outputs.embedding == pytest.approx(expected(model, prompt), abs=1e-5)
        steps = [json.loads(line) for line in log.read_text().splitlines()]
        assert max(step.get("requests", 0) for step in steps) == 4
        (raw,) = llm.embed(asked[:1], pooling_params=PoolingParams(use_activation=False), use_tqdm=False)
        length = sum(value * value for value in raw.outputs.embedding) ** 0.5
        assert length > 2
    finally:
        llm.llm_engine.engine_core.shutdown()


@pytest.mark.default_row
def test_e2e_a_server_embeds(bert: tuple[Path, Any], prompts: list[list[int]], tmp_path: Path) -> None:
    """Token ids over /v1/embeddings; a completion is refused with one line and the server goes on."""
    import httpx

    from vllm_tt_plugin.serving import Server

    folder, model = bert
    environ = {"TT_RUNTIME": "host", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    arguments = ["--served-model-name", "bert", "--max-num-seqs", "4"]
    server = Server(model=str(folder), arguments=arguments, environ=environ, log=tmp_path / "server.log")
    with server:
        for _ in range(2):
            answer = httpx.post(f"{server.url}/v1/embeddings", json={"model": "bert", "input": prompts}, timeout=60)
            assert answer.status_code == 200, answer.text
            for prompt, entry in zip(prompts, answer.json()["data"], strict=True):
                assert entry["embedding"] == pytest.approx(expected(model, prompt), abs=1e-5)
            said = {"model": "bert", "prompt": [1, 2], "max_tokens": 2}
            refused = httpx.post(f"{server.url}/v1/completions", json=said, timeout=60)
            assert 400 <= refused.status_code < 500
