"""A whole Galaxy as one server: four lanes of eight rows in one engine process, one program a step."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from client import MODEL, generate, metric, staggered
from reference import Case, Reference
from tiny import write_bundle, write_tiny_llama

from conftest import HOST, ROOT
from vllm_tt_plugin.serving import Server

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

LANES, PER_LANE = 4, 8
CASES = [Case(f"lane{i}", 1 + (7 * i) % 40, tokens=1 + (13 * i) % 190) for i in range(64)]
SOURCE = "from tt_hostmesh.llama.generator import LlamaForCausalLM as Model\n"


def test_e2e_64_staggered_requests_over_four_lanes_are_exact(checkpoint: Path, tmp_path: Path) -> None:
    """More requests than rows, prompts chunked at 128 tokens. Every lane is used and never holds more than it may."""
    model = write_tiny_llama(tmp_path / "tiny", checkpoint)
    reference: Any = Reference(model, (ROOT / "LICENSE").read_text())
    steps = tmp_path / "steps.jsonl"
    server = Server(
        model=str(model),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", "256", "--max-num-batched-tokens", "128",
            "--data-parallel-size", str(LANES), "--max-num-seqs", str(PER_LANE), "--api-server-count", "1",
            "--additional-config", json.dumps({"tt": {"sample_on_device_mode": "all", "step_log": str(steps)}}),
        ],
        environ={
            **HOST, "MESH_DEVICE": "TG", "TT_HOST_STRICT": "1",
            **write_bundle(tmp_path / "bundles", "lanes_llama", SOURCE, data_parallel="lanes"),
        },
        log=tmp_path / "server.log",
    )  # fmt: skip
    with server:
        jobs = [generate(server.url, case, reference.prompt(case)) for case in CASES]
        answers = asyncio.run(staggered(jobs, gap=0.02))
        assert metric(server.url, "vllm:num_requests_running") == 0
        assert metric(server.url, "vllm:kv_cache_usage_perc") == 0
        assert server.stop() == 0
    wrong = [case.name for case, answer in zip(CASES, answers, strict=True) if answer != reference.answer(case)]
    assert not wrong
    log = server.log.read_text()
    assert "running single-process TT lane-DP" in log
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    opened = next(line for line in lines if line.get("event") == "mesh opened")
    assert opened["devices"] == 32
    decodes = [line for line in lines if line.get("phase") == "decode"]
    assert max(line["requests"] for line in decodes) > (LANES - 1) * PER_LANE, "all lanes decode together"
    assert max(line["requests"] for line in decodes) <= LANES * PER_LANE
