"""Finds an interpreter of a given version: on PATH, or among the ones pyenv and uv keep. Installs none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path


def candidates(version: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Places worth a try, best first; a pyenv shim on PATH may stand for nothing. ``version``: major.minor."""
    on_path = shutil.which(f"python{version}", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    home = Path(environ.get("HOME", "/"))
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    yield from sorted(data.glob(f"uv/python/cpython-{version}.*/bin/python{version}"), reverse=True)


def find(version: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The first candidate that runs and is of the version."""
    for python in candidates(version, environ):
        show = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", show], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return python
    return None
