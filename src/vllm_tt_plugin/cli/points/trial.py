"""A server on the software mesh with a mixed load: the evidence for two points of the audit from one start."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vllm_tt_plugin.cli.points.scheduling import Limits
from vllm_tt_plugin.serving import Server, ServerError

LIMITS = Limits(rows=8, tokens=256, streak=2)
"""The launch below, and decode_interleave_prefill_steps, whose default is 2."""
LOAD = [(prompt, output) for prompt in (8, 40, 300, 700) for output in (4, 24, 48)]
"""Tokens of prompt and output of each request: short and long, all at once, more than there are rows."""
ENVIRONMENT = {
    "TT_RUNTIME": "host",
    "TT_HOST_MAX_TOKENS_ALL_USERS": "16384",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """steps: lines of the worker's step log; asked, answered: output tokens; schema: the server's OpenAPI document."""

    steps: list[dict[str, Any]]
    asked: int
    answered: int
    schema: dict[str, Any]


# What a trial may end with: the server, a request to it (urllib's errors are OSErrors), or the maker of the model.
FAILURES = (ServerError, OSError, subprocess.CalledProcessError)


def available() -> bool:
    """Whether the software mesh is installed."""
    return find_spec("tt_hostmesh") is not None


def run(folder: Path) -> Trial:
    """Serve a model without weights, send the load, stop. Raises one of FAILURES."""
    checkpoint = folder / "model"
    maker = [sys.executable, "-m", "tt_hostmesh.synthetic.checkpoint", str(checkpoint), "--decode-ms", "5"]
    subprocess.run(maker, check=True, capture_output=True)
    log = folder / "steps.jsonl"
    options = json.dumps({"tt": {"sample_on_device_mode": "all", "step_log": str(log)}})
    limits = ("--max-num-seqs", str(LIMITS.rows), "--max-num-batched-tokens", str(LIMITS.tokens))
    arguments = ("--served-model-name", "audit", "--max-model-len", "1024", *limits, "--additional-config", options)
    with Server(model=str(checkpoint), arguments=arguments, environ=ENVIRONMENT, log=folder / "server.log") as server:
        schema = _schema(server)
        with ThreadPoolExecutor(len(LOAD)) as pool:
            answered = sum(pool.map(partial(_ask, server), LOAD))
        server.stop()
    steps = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    warm = [step for step in steps if "phase" in step]
    return Trial(warm, sum(output for _, output in LOAD), answered, schema)


def _schema(server: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}/openapi.json", timeout=60) as reply:
        return dict(json.load(reply))


def _ask(server: Server, request: tuple[int, int]) -> int:
    """Tokens of the answer to one request of the load. No token of the model ends a text."""
    prompt, output = request
    body: Mapping[str, Any] = {
        "model": "audit",
        "prompt": list(range(100, 100 + prompt)),
        "max_tokens": output,
        "temperature": 0,
        "ignore_eos": True,
    }
    return int(server.post("/v1/completions", body)["usage"]["completion_tokens"])
