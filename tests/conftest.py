"""Wheels of the whole workspace, built once for all tests that use what is shipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vllm_tt_plugin.install_vllm import find_uv

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def uv() -> str:
    return find_uv(sys.executable)


@pytest.fixture(scope="session")
def built_wheels(uv: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution name (``tt-worker``) -> its wheel. Built from the source tree into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {wheel.name.split("-")[0].replace("_", "-"): wheel for wheel in sorted(folder.glob("*.whl"))}
