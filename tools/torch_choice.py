"""Which build of torch to install: the smallest that can be had. Standard library only.

The software mesh computes on the CPU, so the GPU libraries of the default build (3 GB) would never be used.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Offer:
    """What pip, configured as it is on this machine, would install: a URL and a version such as ``2.13.0+cpu``."""

    url: str
    version: str

    @property
    def path(self) -> str | None:
        """The local file behind a ``file:`` URL."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None


@dataclass(frozen=True)
class Choice:
    """``arguments`` for ``uv pip install``, and what they fetch, in words."""

    arguments: tuple[str, ...]
    says: str


def choose(torch: str, offer: Offer | None, *, cpu_index: bool, megabytes: int | None = None) -> Choice:
    """The rule: pip's own local file or CPU build, else the CPU index that uv knows, if it answers, else the default.

    ``torch``: the version of the compat row. ``megabytes``: size of the offer's local file, when known.
    """
    if offer is not None and offer.path is not None:
        size = f"{megabytes} MB, " if megabytes is not None else ""
        return Choice(
            (offer.path,), f"torch {offer.version}: a local file that pip is configured to use ({size}no download)"
        )
    if offer is not None and offer.version.endswith("+cpu"):
        return Choice(
            (f"torch @ {offer.url}",),
            f"torch {offer.version}: the CPU build that pip is configured to use (about 200 MB)",
        )
    if cpu_index:
        return Choice(("--torch-backend", "cpu", f"torch=={torch}"), f"torch {torch}: the CPU build (about 200 MB)")
    return Choice(
        (f"torch=={torch}",),
        f"torch {torch}: no CPU build in reach, so the default one (on Linux x86-64 3 GB with its GPU libraries)",
    )


def parse_offer(report: dict[str, Any]) -> Offer | None:
    """The torch entry of a ``pip install --report``."""
    for item in report.get("install", []):
        if item["metadata"]["name"].lower() == "torch":
            return Offer(item["download_info"]["url"], item["metadata"]["version"])
    return None


def ask_pip(python: str, torch: str) -> Offer | None:
    """pip's offer; None when it has none (its index does not answer, or has no build for this Python)."""
    with tempfile.TemporaryDirectory() as folder:
        # A file, not "-": pip colours what it prints when FORCE_COLOR is set, whatever its value.
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", str(report)]
        answered = _output([python, "-m", "pip", "install", *options, f"torch=={torch}"]) is not None
        return parse_offer(json.loads(report.read_text())) if answered and report.exists() else None


def cpu_index_answers(uv: str, python: str, torch: str) -> bool:
    """Whether uv can resolve the CPU build: it knows where that index is."""
    argv = [uv, "pip", "install", "--dry-run", "--no-deps", "--reinstall", "--torch-backend", "cpu", "--python", python]
    return _output([*argv, f"torch=={torch}"]) is not None


def _output(argv: Sequence[str]) -> str | None:
    """The command's output; None when it fails or takes more than a minute."""
    environ = {**os.environ, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "1"}
    try:
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def find(uv: str, python: str, torch: str) -> Choice:
    """Asks pip, then uv only if pip's answer does not settle it."""
    offer = ask_pip(python, torch)
    if offer is not None and offer.path is not None:
        return choose(torch, offer, cpu_index=False, megabytes=os.path.getsize(offer.path) // 1_000_000)
    settled = offer is not None and offer.version.endswith("+cpu")
    return choose(torch, offer, cpu_index=not settled and cpu_index_answers(uv, python, torch))
