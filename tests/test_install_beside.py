"""The installation leaves alone what is there: the drop-in script, and the wheels beside an installed vLLM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from vllm_tt_plugin import compat, install_vllm

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "install-vllm-tt.sh"
HELD = ("vllm", "torch", "numpy")
WHAT_IS_THERE = """
import importlib.metadata as m, json, os
def stamp(name):
    found = m.distribution(name)
    record = os.stat(found.locate_file(next(f for f in found.files if f.name == "RECORD")))
    return [found.version, record.st_ino, record.st_mtime_ns]
print(json.dumps({name: stamp(name) for name in ("vllm", "torch", "numpy")}))
"""


def shell(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    everything = {**os.environ, "PATH": path, **environ}
    return subprocess.run(["bash", "-c", script], env=everything, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def uv_on_path() -> None:
    install_vllm.find_uv(sys.executable)


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


@needs_bash
@pytest.mark.usefixtures("uv_on_path")
def test_the_sourced_script_says_what_it_would_do_and_leaves_the_shell_as_it_was(tmp_path: Path) -> None:
    script = f"cd / && source {SCRIPT} --dry-run --version 0.31.0; echo status $?; declare -F; echo end"
    done = shell(script, XDG_CACHE_HOME=str(tmp_path))
    assert "vLLM 0.31.0 (empty target)" in done.stdout, done.stderr
    assert done.stdout.endswith("status 0\nend\n")
    assert list(tmp_path.iterdir()) == []


@needs_bash
@pytest.mark.usefixtures("uv_on_path")
def test_a_failure_of_the_sourced_script_does_not_end_the_shell() -> None:
    done = shell(f"source {SCRIPT} --dry-run --version 0.1.0; echo status $?")
    assert "vLLM 0.1.0 is not in the compat matrix" in done.stderr
    assert done.stdout == "status 1\n"


def bare_wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel that is nothing but its metadata: for the resolver it is the package."""
    info = f"{name}-{version}.dist-info"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return wheel


@pytest.mark.slow
@pytest.mark.default_row
def test_the_wheels_beside_an_installed_vllm_do_not_reinstall_it_nor_torch_nor_numpy(
    built_wheels: dict[str, Path], uv: str, tmp_path: Path
) -> None:
    """The numpy is one that vLLM's opencv would not accept: a resolver that looked at vLLM's needs would replace it."""
    vllm = install_vllm.cache_dir() / "wheels" / install_vllm.wheel_name(compat.load().default)
    if not vllm.exists():
        pytest.skip(f"{vllm.name} was not built yet: `vllm-tt install-vllm` builds it")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "env")], check=True)
    python = str(tmp_path / "env" / "bin" / "python")
    there = [bare_wheel(tmp_path, "torch", "2.13.0+cpu"), bare_wheel(tmp_path, "numpy", "1.26.4"), vllm]
    install = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--no-deps", *map(str, there)], check=True)
    before = json.loads(subprocess.check_output([python, "-I", "-c", WHAT_IS_THERE]))
    meta = built_wheels["vllm-tt-plugin"]
    subprocess.run([*install, "--find-links", str(meta.parent), str(meta)], check=True)
    after = json.loads(subprocess.check_output([python, "-I", "-c", WHAT_IS_THERE]))
    assert after == before
    assert set(after) == set(HELD)
    help_text = subprocess.check_output([tmp_path / "env" / "bin" / "vllm-tt", "--help"], text=True)
    assert "doctor" in help_text
