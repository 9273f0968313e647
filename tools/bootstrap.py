"""Makes the environment that everything in this repository runs in: ``python3 tools/bootstrap.py [--dev] [--row X]``.

Needs Python 3.11 or newer and the package index, nothing else. The default row of compat.toml goes to ``.venv``, any
other to ``.venvs/<release>``. Run again, it returns at once unless a pyproject.toml or the row has changed.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.exit("bootstrap: this Python is too old: use 3.11 or newer, for example `make PYTHON=python3.12 demo`")

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import torch_choice  # noqa: E402

from vllm_tt_plugin import compat, install_vllm  # noqa: E402
from vllm_tt_plugin.install_vllm import Command, InstallError  # noqa: E402

UV = "uv>=0.11,<1"
RECIPE = 1
"""Raised when this file installs something else than before."""


@dataclass(frozen=True)
class Environment:
    """A folder with an environment in it, and the stamp that says what was installed."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def stamp(self) -> Path:
        return self.folder / "vllm-tt.json"

    def made(self) -> dict[str, str]:
        """The stamp: ``base`` (Python and place) and the fingerprints of the layers ``run`` and ``dev``."""
        try:
            return json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return {}

    def note(self, **facts: str) -> None:
        self.stamp.write_text(json.dumps({**self.made(), **facts}, indent=1) + "\n")


def pyprojects(root: Path = ROOT) -> list[Path]:
    return [root / "pyproject.toml", *sorted(root.glob("packages/*/pyproject.toml"))]


def fingerprint(release: compat.Release, root: Path = ROOT) -> str:
    """Changes when a pyproject, the row or the recipe does."""
    digest = hashlib.sha256(repr((RECIPE, release)).encode())
    for path in pyprojects(root):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def step(text: str) -> Generator[None, None, None]:
    began = time.monotonic()
    print(f"  {text} ...", flush=True)
    yield
    print(f"    {time.monotonic() - began:.1f} s", flush=True)


def run(command: Command) -> None:
    """On a terminal the tool shows its own progress; elsewhere its output appears only when it fails."""
    if not sys.stderr.isatty():
        return install_vllm.execute(command)
    shown = [argument for argument in command.argv if argument != "--quiet"]
    code = subprocess.run(shown, env={**os.environ, **dict(command.variables)}, check=False).returncode
    if code:
        raise InstallError(f"failed with exit code {code}: {command}")
    return None


def uv_settings(pip_config: str, *, same_disk: bool) -> dict[str, str]:
    """Variables for uv: the index and certificate that pip is configured with, hard links from a cache on this disk.

    ``pip_config``: what ``pip config list`` prints. A second environment costs no disk when its files are hard links.
    """
    known = dict(re.findall(r"^(?:global|install|:env:)\.(index-url|cert)='(.*)'$", pip_config, re.MULTILINE))
    names = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    settings = {names[key]: value for key, value in known.items()}
    return {**settings, "UV_LINK_MODE": "hardlink"} if same_disk else settings


def set_up_uv(uv: str, python: str) -> None:
    """Puts the settings into this process's environment, which all tools inherit; what the user has set wins."""
    pip_config = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    cache = Path(subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip())
    cache.mkdir(parents=True, exist_ok=True)
    same_disk = cache.stat().st_dev == ROOT.stat().st_dev
    os.environ.update(
        {name: value for name, value in uv_settings(pip_config, same_disk=same_disk).items() if name not in os.environ}
    )


def create(environment: Environment, *, uv: str | None) -> None:
    """An empty environment, unless it is there: with pip when there is no uv yet, since pip brings uv.

    One of another Python, or moved from elsewhere (its scripts name their interpreter by path), is made again.
    """
    base = f"{sys.version} {environment.folder}"
    if environment.made().get("base") == base and Path(environment.python).exists():
        return
    shutil.rmtree(environment.folder, ignore_errors=True)
    python = getattr(sys, "_base_executable", None) or sys.executable
    with step(f"{environment.folder.relative_to(ROOT)}: a new environment, Python {sys.version.split()[0]}"):
        maker = (python, "-m", "venv") if uv is None else (uv, "venv", "--quiet", "--python", python)
        install_vllm.execute(Command((*maker, str(environment.folder))))
        environment.note(base=base)


def ensure_uv(tools: Environment) -> str:
    """uv in ``.venv``, which is made if it is missing: every environment is filled with it."""
    create(tools, uv=None)
    uv = tools.folder / "bin" / "uv"
    if not uv.exists():
        with step("uv, the installer (20 MB)"):
            install_vllm.execute(Command((tools.python, "-m", "pip", "install", "--quiet", UV)))
    return str(uv)


def workspace() -> list[str]:
    """Our packages, editable, with what the software mesh and the demo checkpoint need."""
    extras = {"tt-hostmesh": "[torch,checkpoint]"}
    packages = [path.parent for path in pyprojects()]
    return [part for folder in packages for part in ("--editable", f"{folder}{extras.get(folder.name, '')}")]


def install_torch(environment: Environment, release: compat.Release, uv: str, tools: Environment) -> None:
    """The row's torch, in the smallest build that can be had; nothing when it is there in any build."""
    present = install_vllm.inspect(environment.python, uv).torch
    if present is not None and present.partition("+")[0] == release.torch:
        return
    choice = torch_choice.find(uv, tools.python, release.torch)
    with step(choice.says):
        run(Command((uv, "pip", "install", "--quiet", "--python", environment.python, *choice.arguments)))


def wheel_of(release: compat.Release, target: install_vllm.Target) -> Path:
    """vLLM's wheel for the empty target, built on the first use on this machine."""
    cache = install_vllm.cache_dir()
    wheel = cache / "wheels" / install_vllm.wheel_name(release)
    if not wheel.exists():
        with step(f"vLLM {release.vllm}: source distribution (45 MB), built without device code into {wheel.parent}"):
            install_vllm.build_wheel(release, target, cache=cache, run=install_vllm.execute)
    return wheel


def install_rest(target: install_vllm.Target, release: compat.Release, wheel: Path, *, dev: bool) -> None:
    """vLLM, its dependencies, our packages and, for ``dev``, the test tools: one resolution, so that they agree."""
    tools = ("--group", f"{ROOT / 'pyproject.toml'}:dev") if dev else ()
    wanted = [*install_vllm.requirements(release, target, wheel), *workspace(), *tools]
    says = f"vLLM {release.vllm}, this workspace and their dependencies (at most {300 if dev else 250} MB)"
    with tempfile.TemporaryDirectory() as folder, step(says):
        excluded = Path(folder) / "excludes.txt"
        excluded.write_text("\n".join(install_vllm.excludes(target)) + "\n")
        run(install_vllm.install_command(target, wanted, excluded))


def bootstrap(release: compat.Release, default: compat.Release, *, dev: bool) -> Environment:
    """The environment of a row, filled if anything it is made from has changed."""
    tools = Environment(ROOT / ".venv")
    environment = tools if release == default else Environment(ROOT / ".venvs" / release.vllm)
    wanted = dict.fromkeys(("run", "dev") if dev else ("run",), fingerprint(release))
    made = environment.made()
    if wanted.items() <= made.items() and made["base"] == f"{sys.version} {environment.folder}":
        return environment
    if not compat.admits(release.python, sys.version_info[:2]):
        raise InstallError(f"vLLM {release.vllm} needs Python {release.python}, this is {sys.version.split()[0]}")
    began = time.monotonic()
    print(f"setting up vLLM {release.vllm} in {environment.folder}", flush=True)
    uv = ensure_uv(tools)
    set_up_uv(uv, tools.python)
    create(environment, uv=uv)
    install_torch(environment, release, uv, tools)
    target = install_vllm.inspect(environment.python, uv)
    install_rest(target, release, wheel_of(release, target), dev=dev)
    environment.note(**wanted)
    print(f"ready in {time.monotonic() - began:.0f} s", flush=True)
    return environment


def main() -> int:
    matrix = compat.load()
    parser = argparse.ArgumentParser(description="Makes the environment of a row of compat.toml.")
    parser.add_argument(
        "--row",
        default=matrix.default.vllm,
        metavar="X",
        help=f"one of {', '.join(matrix.versions)} (default: %(default)s)",
    )
    parser.add_argument("--dev", action="store_true", help="with the tools that test, lint and check types")
    options = parser.parse_args()
    try:
        bootstrap(matrix.row(options.row), matrix.default, dev=options.dev)
    except (InstallError, compat.CompatError) as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        print(
            "The first run needs the package index that pip uses (`pip config list`); what was done so far is kept.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
