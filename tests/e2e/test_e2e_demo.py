"""The README's first command, as its user sees it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from conftest import ROOT

pytestmark = [pytest.mark.default_row, pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]


def test_e2e_the_demo_answers_and_stops_cleanly(checkpoint: object) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Paris" in done.stdout
    assert re.search(r"Steps\W+[1-9]\d* prefill, [1-9]\d* decode, 0 mixed", done.stdout)
    assert re.search(r"Speed\W+[1-9]", done.stdout)
    assert "Stopped cleanly: exit code 0, mesh closed, no process left." in done.stdout
