"""A model with block output behind HTTP: what does not fit gets 400, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from client import MODEL
from tiny import write_tiny_llama

from conftest import HOST
from vllm_tt_plugin.serving import Server

pytestmark = [pytest.mark.default_row, pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

BLOCKS = "LlamaForCausalLM=tt_hostmesh.blocks.generator:BlockLlamaForCausalLM"
CONTEXT = 256


@pytest.fixture(scope="module")
def url(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("blocks")
    server = Server(
        model=str(write_tiny_llama(folder / "tiny", checkpoint)),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", str(CONTEXT),
            "--additional-config", json.dumps({"tt": {"sample_on_device_mode": "all"}}),
        ],
        environ={**HOST, "TT_HOST_STRICT": "1", "TT_MODEL_CLASS_OVERRIDES": BLOCKS},
        log=folder / "server.log",
    )  # fmt: skip
    with server:
        yield server.url
        assert server.stop() == 0


def ask(url: str, **more: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": [5, 6, 7], "return_token_ids": True, "ignore_eos": True, **more}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=120)


def test_e2e_what_blocks_cannot_serve_gets_400(url: str) -> None:
    """And what is served has as many tokens as were asked for, or as many as whole blocks have room for."""
    refused = {
        "n": {"n": 2},
        "logprobs": {"logprobs": 1},
        "min_tokens": {"min_tokens": 3},
        "max_tokens": {"prompt": list(range(5, 40)), "max_tokens": 200},
    }
    for name, asked in refused.items():
        answer = ask(url, **asked)
        assert answer.status_code == 400, (name, answer.text)
        assert name in answer.text
        assert "blocks of 8 tokens" in answer.text
    for count in (1, 8, 13):
        answer = ask(url, max_tokens=count, temperature=0.7, seed=3)
        assert len(answer.json()["choices"][0]["token_ids"]) == count
    longest = ask(url, max_tokens=CONTEXT - 3).json()["choices"][0]
    assert (len(longest["token_ids"]), longest["finish_reason"]) == (CONTEXT - 32, "length")
