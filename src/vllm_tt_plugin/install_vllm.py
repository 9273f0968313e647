"""Installs vLLM for the empty target: ``python -m vllm_tt_plugin.install_vllm [--version X] [--dry-run]``.

The wheel on the package index is built for CUDA. This builds one without device code from the source distribution, once
per release, keeps it in the user's cache, and installs it with its dependencies but without replacing the torch, numpy
and transformers that fit this environment. Standard library only, so that it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vllm_tt_plugin import compat
from vllm_tt_plugin.compat import CompatError, Release

BUILD_TOOLS = (
    "setuptools>=77,<81",
    "setuptools-scm",
    "setuptools-rust",
    "wheel",
    "packaging",
    "jinja2",
    "cmake",
    "ninja",
    "pip",
)
INSPECT = """
import importlib.metadata as m, json, sys, sysconfig
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
files = [str(f) for f in m.files("vllm") or ()] if version("vllm") else []
opencv = [f"{name} {version(name)}" for name in (
    "opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python"
) if version(name)]
print(json.dumps({
    "python": sys.version_info[:2],
    "site": sysconfig.get_path("purelib"),
    "device_code": any(f.endswith(".so") for f in files),
    "opencv": opencv[0] if opencv else None,
    "versions": {name: version(name) for name in ("vllm", "torch", "numpy", "ttnn")},
}))
"""


class InstallError(RuntimeError):
    """What failed and what to do, in one line or with the failing tool's last lines below."""


@dataclass(frozen=True, slots=True)
class Target:
    """The environment to install into.

    device_code: its vLLM has compiled kernels, so is not the empty target
    opencv:      name and version of whichever build of opencv is there
    """

    python: str
    uv: str
    version: tuple[int, ...]
    site: str
    torch: str | None
    vllm: str | None
    numpy: str | None
    ttnn: str | None
    device_code: bool
    opencv: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with the variables it adds to the environment."""

    argv: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in self.variables), shlex.join(self.argv)])


Run = Callable[[Command], None]


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``$XDG_CACHE_HOME/vllm-tt``, else ``~/.cache/vllm-tt``; a relative XDG path is ignored."""
    base = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "vllm-tt"
    try:
        return Path.home() / ".cache" / "vllm-tt"
    except RuntimeError as error:
        raise InstallError("no home directory for the cache: set HOME or XDG_CACHE_HOME") from error


def find_uv(python: str, environ: Mapping[str, str] = os.environ) -> str:
    """uv beside the interpreter or on PATH. Raises InstallError with what to run."""
    found = shutil.which("uv", path=os.pathsep.join([str(Path(python).parent), environ.get("PATH", os.defpath)]))
    if found is None:
        raise InstallError("uv is not installed: run `python -m pip install uv`")
    return found


def inspect(python: str, uv: str) -> Target:
    """Reads the metadata of the environment; imports none of its packages."""
    done = subprocess.run([python, "-c", INSPECT], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"cannot run {python}: {done.stderr.strip()}")
    facts = json.loads(done.stdout)
    version = tuple(facts["python"])
    found = {"device_code": facts["device_code"], "opencv": facts["opencv"], **facts["versions"]}
    return Target(python, uv, version, facts["site"], **found)


def wheel_name(release: Release) -> str:
    return f"vllm-{release.vllm}-py3-none-any.whl"


def build_commands(release: Release, target: Target, work: Path) -> list[Command]:
    """Build a wheel into ``work/out``, in an environment of build tools that also sees the target's torch."""
    return [*_tools(target, work), _pip("wheel", "--wheel-dir", release.vllm, work)]


def fetch_commands(version: str, target: Target, work: Path) -> list[Command]:
    """Fetch the source distribution of any release into ``work/out``. pip asks its setup.py for a name: no build."""
    return [*_tools(target, work), _pip("download", "--dest", version, work)]


def _tools(target: Target, work: Path) -> list[Command]:
    python = str(work / "env" / "bin" / "python")
    see_torch = f"import sysconfig; open(sysconfig.get_path('purelib') + '/target.pth', 'w').write({target.site!r})"
    return [
        Command((target.uv, "venv", "--quiet", "--python", target.python, str(work / "env"))),
        Command((target.uv, "pip", "install", "--quiet", "--python", python, *BUILD_TOOLS)),
        Command((python, "-c", see_torch)),
    ]


def _pip(verb: str, into: str, version: str, work: Path) -> Command:
    python = str(work / "env" / "bin" / "python")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-binary", "vllm", into, str(work / "out"))
    variables = (("VLLM_TARGET_DEVICE", "empty"), ("VLLM_VERSION_OVERRIDE", version))
    return Command((python, "-m", "pip", verb, *options, f"vllm=={version}"), variables)


def tag_command(wheel: Path, work: Path) -> Command:
    """There is no compiled code in it, so one wheel fits every Python of the row."""
    tags = ("--python-tag", "py3", "--abi-tag", "none", "--platform-tag", "any")
    return Command((str(work / "env" / "bin" / "python"), "-m", "wheel", "tags", "--remove", *tags, str(wheel)))


def build_wheel(release: Release, target: Target, *, cache: Path, run: Run) -> Path:
    """The release's wheel in the cache, built when it is not there. It appears in one rename."""
    wanted = cache / "wheels" / wheel_name(release)
    if not wanted.exists():
        with _workplace(wanted, target) as work:
            for command in build_commands(release, target, work):
                run(command)
            (built,) = (work / "out").glob("vllm-*.whl")
            run(tag_command(built, work))
            (work / "out" / wanted.name).replace(wanted)
    return wanted


def sdist_file(cache: Path, version: str) -> Path:
    return cache / "sdists" / f"vllm-{version}.tar.gz"


def fetch_sdist(version: str, target: Target, wanted: Path, *, run: Run) -> Path:
    """The source distribution of any vLLM release. It appears in one rename."""
    with _workplace(wanted, target) as work:
        for command in fetch_commands(version, target, work):
            run(command)
        (work / "out" / wanted.name).replace(wanted)
    return wanted


@contextmanager
def _workplace(wanted: Path, target: Target) -> Generator[Path, None, None]:
    """A folder beside the wanted file, gone afterwards."""
    if target.torch is None:
        raise InstallError(f"{target.python} has no torch, which the build of vLLM reads: install it first")
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{wanted.stem}.", dir=wanted.parent))
    except OSError as error:
        raise InstallError(
            f"cannot write to the cache {wanted.parent}: {error.strerror}; set XDG_CACHE_HOME"
        ) from error
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


OPENCV = "opencv-python-headless"


def left_out(target: Target) -> dict[str, str]:
    """Packages that vLLM's metadata asks for and this environment does without, with the reason.

    Every release wants an opencv that needs numpy 2, and ttnn needs numpy 1: they cannot be installed together.
    """
    why = {"triton": "1 GB, not used here, and its presence makes vLLM choose another model runner"}
    if target.opencv:
        why[OPENCV] = f"{target.opencv} is there and is kept"
    elif needs_numpy_1(target):
        owner = "ttnn" if target.ttnn else f"the installed numpy {target.numpy}"
        why[OPENCV] = f"it needs numpy 2, which {owner} rules out; only video input uses it"
    return why


def needs_numpy_1(target: Target) -> bool:
    return target.ttnn is not None or (target.numpy or "2").startswith(("0.", "1."))


def excludes(target: Target) -> list[str]:
    """The names of :func:`left_out`."""
    return list(left_out(target))


def kept(target: Target) -> list[str]:
    """Exact requirements for what is there and must stay: torch and numpy belong to whoever installed them."""
    held = [f"{name}=={version}" for name, version in (("torch", target.torch), ("numpy", target.numpy)) if version]
    return [*held, "numpy<2"] if target.ttnn and not target.numpy else held


def requirements(release: Release, target: Target, wheel: Path) -> list[str]:
    """What is kept, the row's transformers, and the wheel: it carries the requirements file of its sources."""
    return [*kept(target), f"transformers{release.transformers}", str(wheel)]


def install_command(target: Target, wanted: Sequence[str], excluded: Path, *, quiet: bool = True) -> Command:
    options = ("--quiet",) if quiet else ()
    argv = (target.uv, "pip", "install", *options, "--python", target.python, "--excludes", str(excluded), *wanted)
    return Command(argv)


def check_python(release: Release, target: Target) -> None:
    if not compat.admits(release.python, target.version):
        here = ".".join(map(str, target.version))
        raise InstallError(f"{target.python} is Python {here}: vLLM {release.vllm} needs {release.python}")


def install(release: Release, target: Target, *, cache: Path, run: Run) -> bool:
    """Installs the release; False when it was there already. InstallError when Python does not fit."""
    check_python(release, target)
    if target.vllm == release.vllm and not target.device_code:
        return False
    wheel = build_wheel(release, target, cache=cache, run=run)
    with tempfile.TemporaryDirectory() as folder:
        excluded = Path(folder) / "excludes.txt"
        excluded.write_text("\n".join(excludes(target)) + "\n")
        run(install_command(target, requirements(release, target, wheel), excluded))
    return True


def execute(command: Command) -> None:
    """Runs it; its output is shown only when it fails."""
    environ = {**os.environ, **dict(command.variables)}
    done = subprocess.run(
        command.argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise InstallError(f"failed with exit code {done.returncode}: {command}\n{last}")


def announce(command: Command) -> None:
    print(f"+ {command}", flush=True)


def announce_and_execute(command: Command) -> None:
    announce(command)
    execute(command)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation does. ``commands`` is empty when there is nothing to do."""

    release: Release
    already_there: bool
    commands: tuple[Command, ...]
    kept: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]


def plan(release: Release, target: Target, cache: Path) -> Plan:
    """The plan of an installation, in order. Changes nothing. InstallError when Python does not fit."""
    check_python(release, target)
    there = target.vllm == release.vllm and not target.device_code
    commands: list[Command] = []
    if not there:
        wheel = cache / "wheels" / wheel_name(release)
        if not wheel.exists():
            work = wheel.parent / "WORK"
            commands += [*build_commands(release, target, work), tag_command(work / "out" / "vllm-*.whl", work)]
        commands.append(install_command(target, requirements(release, target, wheel), Path("excludes.txt")))
    return Plan(release, there, tuple(commands), tuple(kept(target)), tuple(left_out(target).items()))


def explain(plan: Plan, *, dry_run: bool) -> str:
    """The plan in words; for a dry run with its commands."""
    if plan.already_there:
        return f"vLLM {plan.release.vllm} (empty target) is installed already: nothing to do"
    lines = [f"{'would install' if dry_run else 'installed'} vLLM {plan.release.vllm} (empty target)"]
    lines += [f"kept: {requirement}" for requirement in plan.kept]
    lines += [f"left out: {name}: {why}" for name, why in plan.excluded]
    if dry_run:
        lines.append(f"excludes.txt: {' '.join(name for name, _ in plan.excluded)}")
        lines += [f"+ {command}" for command in plan.commands]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    matrix = compat.load()
    parser = argparse.ArgumentParser(
        prog="python -m vllm_tt_plugin.install_vllm", description="Installs vLLM for the empty target."
    )
    parser.add_argument(
        "--version", default=matrix.default.vllm, help=f"one of {', '.join(matrix.versions)} (default: %(default)s)"
    )
    parser.add_argument("--python", default=sys.executable, help="the environment to install into (default: this one)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and change nothing")
    options = parser.parse_args(arguments)
    try:
        release = matrix.row(options.version)
        target = inspect(options.python, find_uv(options.python))
        planned = plan(release, target, cache_dir())
        if not options.dry_run:
            install(release, target, cache=cache_dir(), run=announce_and_execute)
        print(explain(planned, dry_run=options.dry_run))
    except (InstallError, CompatError) as error:
        print(f"install_vllm: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
