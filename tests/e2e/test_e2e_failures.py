"""The device breaks or hangs in the middle of serving: one error that says so, an ended server, a closed mesh."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from client import MODEL
from tiny import write_bundle, write_tiny_llama

from conftest import HOST
from vllm_tt_plugin.serving import Server

pytestmark = [pytest.mark.long, pytest.mark.default_row, pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

SOURCE = """
import threading
from tt_hostmesh.llama.generator import LlamaForCausalLM


class Model(LlamaForCausalLM):
    decodes = 0

    def decode_forward(self, *args, **keywords):
        self.decodes += 1
        if self.decodes > 30:
            {fault}
        return super().decode_forward(*args, **keywords)
"""
FAULTS = {
    "breaks": ("raise OSError('core 3,7 does not answer')", "OSError: core 3,7 does not answer"),
    "hangs": ("threading.Event().wait()", "a decode step did not end within additional_config.tt.step_time_limit_s=5"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_e2e_a_device_that_fails_ends_the_server_with_its_cause(fault: str, checkpoint: Path, tmp_path: Path) -> None:
    """Clients get an error instead of waiting for ever, the log names the step's requests and the cause, the mesh is
    closed."""
    code, says = FAULTS[fault]
    steps = tmp_path / "steps.jsonl"
    tt = {"sample_on_device_mode": "all", "step_log": str(steps), "step_time_limit_s": 5}
    server = Server(
        model=str(write_tiny_llama(tmp_path / "tiny", checkpoint)),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", "256", "--max-num-seqs", "2",
            "--additional-config", json.dumps({"tt": tt}),
        ],
        environ={**HOST, **write_bundle(tmp_path / "bundles", f"llama_{fault}", SOURCE.format(fault=code))},
        log=tmp_path / "server.log",
    )  # fmt: skip
    with server:
        body = {"model": MODEL, "prompt": [5, 6, 7], "temperature": 0, "max_tokens": 200, "ignore_eos": True}
        reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert reply.status_code == 500
        server.wait()
    log = server.log.read_text()
    assert "The step of cmpl-" in log
    assert says in log
    assert "Closed the device mesh" in log
    events = [json.loads(line).get("event") for line in steps.read_text().splitlines()]
    assert events[-1] == "model released"
