"""The counters of sampled steps, seen from another process as /metrics sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

ENGINE = """
from types import SimpleNamespace
from tt_sampling.reasons import Reason, ReasonTally
from tt_worker.vllm.metrics import StepMetrics
tally = ReasonTally(StepMetrics(["demo"], SimpleNamespace(data_parallel_index=1)).count)
for reasons in ([], [Reason.MIN_P], [Reason.MIN_P, Reason.LOGPROBS]):
    tally.count(frozenset(reasons))
print(tally.summary())
"""
SERVER = """
from prometheus_client import generate_latest
from vllm.v1.metrics.prometheus import get_prometheus_registry
print(generate_latest(get_prometheus_registry()).decode())
"""


def test_the_counts_of_an_engine_process_are_on_the_metrics_page_of_another(tmp_path: Path) -> None:
    """With PROMETHEUS_MULTIPROC_DIR, by vLLM's own way of reading the registry."""
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "TT_RUNTIME": "host"}

    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(ENGINE).startswith("1 steps sampled on the device, 2 on the host, because of: min_p (2), logprobs")
    page = run(SERVER)
    for line in (
        'tt:sampled_steps_total{engine="1",model_name="demo",where="device"} 1.0',
        'tt:sampled_steps_total{engine="1",model_name="demo",where="host"} 2.0',
        'tt:host_sampled_steps_total{engine="1",model_name="demo",reason="min_p"} 2.0',
        'tt:host_sampled_steps_total{engine="1",model_name="demo",reason="logprobs"} 1.0',
    ):
        assert line in page
