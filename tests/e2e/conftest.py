"""One server for the real model, and the reference answers, shared by the end-to-end tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from client import MODEL

from vllm_tt_plugin.serving import Server

ROOT = Path(__file__).parents[2]
HOST = {
    "TT_RUNTIME": "host",
    "TT_HOST_MAX_TOKENS_ALL_USERS": "16384",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    from tt_hostmesh.checkpoint import ensure

    return ensure()


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Any:
    from reference import Reference

    return Reference(checkpoint, (ROOT / "LICENSE").read_text())


@dataclass(frozen=True)
class Served:
    """A running server and what it wrote."""

    server: Server
    step_log: Path

    @property
    def url(self) -> str:
        return self.server.url

    def steps(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.step_log.read_text().splitlines()]
        return [line for line in lines if "phase" in line]


@pytest.fixture(scope="session")
def served(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """SmolLM2-135M-Instruct, 8 rows, prompts chunked at 512 tokens, sampled on the device."""
    folder = tmp_path_factory.mktemp("served")
    tt = {"sample_on_device_mode": "all", "step_log": str(folder / "steps.jsonl")}
    server = Server(
        model=str(checkpoint),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", "1024", "--max-num-seqs", "8",
            "--max-num-batched-tokens", "512", "--additional-config", json.dumps({"tt": tt}),
        ],
        environ=HOST,
        log=folder / "server.log",
    )  # fmt: skip
    with server:
        yield Served(server, folder / "steps.jsonl")
