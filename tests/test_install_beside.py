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


def bare_wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """A wheel that is nothing but its metadata: for the resolver it is the package."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return wheel


class Beside:
    """An environment with an empty-target vLLM and with a numpy that vLLM's opencv would not accept: a resolver that
    looked at vLLM's needs would replace it."""

    def __init__(self, folder: Path, uv: str) -> None:
        vllm = install_vllm.cache_dir() / "wheels" / install_vllm.wheel_name(compat.load().default)
        if not vllm.exists():
            pytest.skip(f"{vllm.name} was not built yet: `vllm-tt install-vllm` builds it")
        subprocess.run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(folder / "env")], check=True)
        self.bin = folder / "env" / "bin"
        python = str(self.bin / "python")
        self.installers = {
            "uv": [uv, "pip", "install", "--quiet", "--python", python],
            "pip": [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
        }
        there = [bare_wheel(folder, "torch", "2.13.0+cpu"), bare_wheel(folder, "numpy", "1.26.4"), vllm]
        subprocess.run([*self.installers["uv"], "--no-deps", *map(str, there)], check=True)

    def install(self, installer: str, wheel: Path) -> None:
        subprocess.run([*self.installers[installer], "--find-links", str(wheel.parent), str(wheel)], check=True)

    def held(self) -> dict[str, list[object]]:
        """Version, and the file that a reinstallation writes anew, of what the environment owns."""
        found = json.loads(subprocess.check_output([self.bin / "python", "-I", "-c", WHAT_IS_THERE]))
        assert set(found) == set(HELD)
        return found


@pytest.fixture
def beside(tmp_path: Path, uv: str) -> Beside:
    return Beside(tmp_path, uv)


@pytest.mark.slow
@pytest.mark.default_row
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_wheels_beside_an_installed_vllm_do_not_reinstall_it_nor_torch_nor_numpy(
    built_wheels: dict[str, Path], beside: Beside, installer: str
) -> None:
    before = beside.held()
    beside.install(installer, built_wheels["vllm-tt-plugin"])
    assert beside.held() == before
    help_text = subprocess.check_output([beside.bin / "vllm-tt", "--help"], text=True)
    assert "doctor" in help_text


@pytest.mark.slow
@pytest.mark.default_row
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_wheel_that_asks_for_another_numpy_would_be_seen(beside: Beside, tmp_path: Path, installer: str) -> None:
    bare_wheel(tmp_path, "numpy", "99.0")
    before = beside.held()
    beside.install(installer, bare_wheel(tmp_path, "asks-for-numpy", "1.0", "numpy>=99"))
    after = beside.held()
    assert [name for name in HELD if after[name] != before[name]] == ["numpy"]
