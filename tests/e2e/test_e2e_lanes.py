"""A whole Galaxy as one server: four lanes of eight rows in one engine process, one program a step."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client import MODEL, generate, metric, staggered
from reference import Case, Reference
from tiny import write_bundle, write_tiny_llama

from conftest import HOST, ROOT, Served
from vllm_tt_plugin.serving import Server

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.every_row, pytest.mark.slow]

LANES, PER_LANE = 4, 8
CASES = [Case(f"lane{i}", 1 + (7 * i) % 40, tokens=1 + (13 * i) % 190) for i in range(64)]
SOURCE = "from tt_hostmesh.llama.generator import LlamaForCausalLM as Model\n"


@pytest.fixture(scope="module")
def model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"), checkpoint)


@pytest.fixture(scope="module")
def galaxy(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """32 devices, 4 lanes of 8 rows, prompts chunked at 128 tokens."""
    folder = tmp_path_factory.mktemp("galaxy")
    steps = folder / "steps.jsonl"
    server = Server(
        model=str(model),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", "256", "--max-num-batched-tokens", "128",
            "--data-parallel-size", str(LANES), "--max-num-seqs", str(PER_LANE), "--api-server-count", "1",
            "--additional-config", json.dumps({"tt": {"sample_on_device_mode": "all", "step_log": str(steps)}}),
        ],
        environ={
            **HOST, "MESH_DEVICE": "TG", "TT_HOST_STRICT": "1",
            **write_bundle(folder / "bundles", "lanes_llama", SOURCE, data_parallel="lanes"),
        },
        log=folder / "server.log",
    )  # fmt: skip
    with server:
        yield Served(server, steps)
        assert server.stop() == 0


def test_e2e_64_staggered_requests_over_four_lanes_are_exact(galaxy: Served, model: Path) -> None:
    """More requests than rows. Every lane is used and never holds more than it may."""
    reference: Any = Reference(model, (ROOT / "LICENSE").read_text())
    jobs = [generate(galaxy.url, case, reference.prompt(case)) for case in CASES]
    answers = asyncio.run(staggered(jobs, gap=0.02))
    assert metric(galaxy.url, "vllm:num_requests_running") == 0
    assert metric(galaxy.url, "vllm:kv_cache_usage_perc") == 0
    wrong = [case.name for case, answer in zip(CASES, answers, strict=True) if answer != reference.answer(case)]
    assert not wrong
    log = galaxy.server.log.read_text()
    assert "running single-process TT lane-DP" in log
    assert "multidevice with 32 devices" in log
    decodes = [step for step in galaxy.steps() if step["phase"] == "decode"]
    assert max(step["requests"] for step in decodes) > (LANES - 1) * PER_LANE, "all lanes decode together"
    assert max(step["requests"] for step in decodes) <= LANES * PER_LANE


@pytest.mark.long
def test_e2e_vllm_s_own_benchmark_completes_every_request(galaxy: Served, model: Path) -> None:
    command = [
        sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--base-url", galaxy.url,
        "--model", MODEL, "--tokenizer", str(model), "--dataset-name", "random", "--random-input-len", "100",
        "--random-output-len", "100", "--num-prompts", "32", "--ignore-eos",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **HOST})
    report = dict(line.rsplit(":", 1) for line in done.stdout.splitlines() if ":" in line)
    counts = [
        report.get(name, "").strip() for name in ("Successful requests", "Failed requests", "Total generated tokens")
    ]
    assert counts == ["32", "0", "3200"], done.stdout + done.stderr
