"""Upstream cadence: the newest vLLM on the package index against our newest row."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from vllm_tt_plugin import compat, install_vllm
from vllm_tt_plugin.cli.points.finding import Finding, judged

POINT = "upstream cadence"
SECONDS = 60


def newest_release() -> str | None:
    """The newest vLLM that pip or uv is offered for this Python; None when the index does not answer."""
    if find_spec("pip") is not None:
        said = _output([sys.executable, "-m", "pip", "index", "versions", "vllm"])
        match = re.search(r"^vllm \(([^)]+)\)", said, re.MULTILINE)
        return match[1] if match else None
    uv = install_vllm.find_uv(sys.executable)
    said = _output([uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "-"], "vllm\n")
    match = re.search(r"^vllm==(\S+)", said, re.MULTILINE)
    return match[1] if match else None


def _output(argv: Sequence[str], given: str = "") -> str:
    try:
        done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def judge(newest: str | None, matrix: compat.Matrix) -> Finding:
    """Passes when the newest release is a tested row; a patch release of a row's minor passes too."""
    rows = {release.key[:2]: release for release in matrix.releases}
    ours = matrix.releases[0].vllm
    if newest is None:
        return Finding(
            POINT, "unknown", ("offline: no answer from the package index", f"newest row: {ours}"), "ask again online"
        )
    evidence = [f"newest release on the package index: {newest}", f"newest row: {ours}"]
    row = rows.get(compat.leading_numbers(newest)[:2])
    if row is None and compat.leading_numbers(newest) < matrix.releases[0].key:
        return judged(POINT, [], evidence, "")
    wrong = [] if row is not None else [f"vLLM {newest} is no row of the compat matrix"]
    if row is not None and row.status != "tested":
        wrong = [f"the row of vLLM {newest} is untested"]
    return judged(POINT, wrong, evidence, f"`nox -s surface -- {newest}`, then add the row and run `nox -s compat`")
