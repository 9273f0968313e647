"""What is shipped: each wheel alone, and all of them together, in environments without the source tree."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from release import __main__ as release
from release import wheel

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow

NAMES = ["tt-hostmesh", "tt-platform", "tt-registry", "tt-sampling", "tt-scheduler", "tt-worker", "vllm-tt-plugin"]
IMPORT_CORE = """
import importlib, json, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"vllm", "torch", "ttnn"}:
            raise ModuleNotFoundError(f"{name} is blocked by the test", name=name.partition(".")[0])

sys.meta_path.insert(0, Blocked())
package = importlib.import_module(sys.argv[1])
lacking = {}
for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".", onerror=lambda name: None):
    if {"vllm", "__main__"} & set(module.name.split(".")):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        lacking.setdefault(error.name, []).append(module.name)
print(json.dumps({"file": package.__file__, "lacking": lacking}))
"""
TENSORS = {"tt-sampling", "tt-worker", "tt-hostmesh"}
"""Packages where some core modules work on tensors and so need torch; their others, and the packages, do not."""
DROP_IN = {f"vllm_tt_plugin.{name}" for name in ("platform", "worker", "scheduler", "lane_scheduler", "model_runner")}
"""Re-exports of adapters under the names that configurations carry."""
READ_COMPAT = "from vllm_tt_plugin import compat; print(compat.matrix_file()); print(*compat.load().versions)"
ENTRY_POINTS = """
import json
from importlib.metadata import entry_points
groups = ("vllm.platform_plugins", "vllm.general_plugins", "tt_platform.runtimes")
print(json.dumps({group: {e.name: e.value for e in entry_points(group=group)} for group in groups}))
"""


def module_of(name: str) -> str:
    return name.replace("-", "_")


def requires(wheel: Path) -> set[str]:
    """Names of the distributions that a wheel needs, without those of its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = Parser().parsestr(archive.read(path).decode()).get_all("Requires-Dist") or []
    return {re.split(r"[^A-Za-z0-9_.-]", line)[0] for line in lines if "extra ==" not in line}


def closure(name: str, wheels: dict[str, Path]) -> list[Path]:
    """The wheel of a package and those of ours that it needs, so that none is looked for elsewhere."""
    found, todo = {name}, [name]
    while todo:
        new = requires(wheels[todo.pop()]) & wheels.keys() - found
        found |= new
        todo += new
    return [wheels[each] for each in sorted(found)]


@pytest.fixture
def install(uv: str, tmp_path: Path):
    """Installs wheels into a new environment and returns its interpreter."""

    def into_new_environment(*wheels: Path) -> Path:
        subprocess.run([uv, "venv", "--quiet", str(tmp_path / "env")], check=True)
        python = tmp_path / "env" / "bin" / "python"
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *map(str, wheels)], check=True)
        return python

    return into_new_environment


def output(python: Path, code: str, *arguments: str) -> str:
    """What the code prints in isolated mode, where neither PYTHONPATH nor the current folder is searched."""
    done = subprocess.run([python, "-I", "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_package_of_the_workspace_is_built(built_wheels: dict[str, Path]) -> None:
    assert sorted(built_wheels) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_holds_its_package_and_nothing_else(name: str, built_wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(built_wheels[name]) as archive:
        files = archive.namelist()
    assert {file.split("/")[0] for file in files if ".dist-info/" not in file} == {module_of(name)}
    assert f"{module_of(name)}/py.typed" in files


@pytest.mark.parametrize("name", NAMES)
def test_each_package_installs_alone_and_imports_without_vllm_torch_and_ttnn(name, built_wheels, install) -> None:
    python = install(*closure(name, built_wheels))
    found = json.loads(output(python, IMPORT_CORE, module_of(name)))
    assert "site-packages" in found["file"]
    allowed = {"torch"} if name in TENSORS else set()
    for what in {"vllm", "ttnn", "torch"} - allowed:
        assert set(found["lacking"].get(what, ())) <= DROP_IN


def test_the_wheels_are_what_a_release_must_be(built_wheels: dict[str, Path]) -> None:
    """Contents, pins, changelog fragments, and what the sources break since the last tag."""
    wheels = {name: wheel.read(path) for name, path in built_wheels.items()}
    looked_at = {package.name: problems for package, _, problems in release.check(ROOT, wheels)}
    assert looked_at == {name: [] for name in NAMES}


def test_no_package_but_the_extras_asks_for_vllm_or_torch(built_wheels: dict[str, Path]) -> None:
    """A resolver would replace the empty-target vLLM and the CPU build of torch by CUDA wheels."""
    asking = {name for name, wheel in built_wheels.items() if requires(wheel) & {"vllm", "torch"}}
    assert asking == set()


def test_installed_together_they_bring_the_matrix_and_the_entry_points(built_wheels, install) -> None:
    python = install(*built_wheels.values())
    where, versions = output(python, READ_COMPAT).splitlines()
    assert "site-packages" in where
    assert "0.33.0" in versions.split()
    assert json.loads(output(python, ENTRY_POINTS)) == {
        "vllm.platform_plugins": {"tt": "vllm_tt_plugin.entrypoints:platform_plugin"},
        "vllm.general_plugins": {"tt_model_registry": "vllm_tt_plugin.entrypoints:register"},
        "tt_platform.runtimes": {"host": "tt_hostmesh:HostRuntime"},
    }
