"""The compat matrix: which vLLM releases this plugin was tested with, and what to say about an installed one.

Standard library only: it is read before anything is installed, and in every vLLM process.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class CompatError(ValueError):
    """A release or a row that the matrix does not have."""


@dataclass(frozen=True, slots=True)
class Release:
    """One row: a vLLM release and what it was tested with. ``python`` and ``transformers`` are version ranges."""

    vllm: str
    python: str
    torch: str
    transformers: str
    status: str
    notes: str

    @property
    def key(self) -> tuple[int, ...]:
        return numbers(self.vllm)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All rows, newest first, and the default one."""

    releases: tuple[Release, ...]
    default: Release

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(release.vllm for release in self.releases)

    @property
    def requirement(self) -> str:
        """What the extra ``vllm`` of every package says: from the oldest row to below the minor after the newest."""
        major, minor, *_ = self.releases[0].key
        return f"vllm>={self.releases[-1].vllm},<{major}.{minor + 1}"

    def row(self, vllm: str) -> Release:
        """The row of a release. Raises CompatError that names the rows there are."""
        for release in self.releases:
            if release.vllm == vllm:
                return release
        raise CompatError(f"vLLM {vllm} is not in the compat matrix: allowed {', '.join(self.versions)}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ok``: this vLLM is a tested row. Otherwise ``message`` says in one line what is wrong and what to run."""

    ok: bool
    message: str


def numbers(text: str) -> tuple[int, ...]:
    """``0.33.0`` -> (0, 33, 0). Raises ValueError for anything but dotted integers."""
    return tuple(int(part) for part in text.split("."))


def parse(document: Mapping[str, Any]) -> Matrix:
    """The matrix of a parsed compat.toml. CompatError for a default without a row, TypeError for an unknown field."""
    releases = sorted((Release(**row) for row in document["release"]), key=lambda release: release.key, reverse=True)
    rows = {release.vllm: release for release in releases}
    if document["default"] not in rows:
        raise CompatError(f"compat.toml: default {document['default']!r} is not a row: allowed {', '.join(rows)}")
    return Matrix(tuple(releases), rows[document["default"]])


def matrix_file() -> Path:
    """compat.toml: inside an installed package, at the root of a source tree."""
    inside = Path(__file__).with_name("compat.toml")
    return inside if inside.exists() else Path(__file__).parents[2] / "compat.toml"


def load() -> Matrix:
    return parse(tomllib.loads(matrix_file().read_text(encoding="utf-8")))


def admits(spec: str, given: tuple[int, ...]) -> bool:
    """Whether a range such as ``>=3.11,<3.15`` holds the version. Knows ``>=`` and ``<``: all that the matrix uses."""
    for part in spec.split(","):
        if part.startswith(">="):
            if given < numbers(part[2:]):
                return False
        elif part.startswith("<") and not part.startswith("<="):
            if given >= numbers(part[1:]):
                return False
        else:
            raise CompatError(f"range {spec!r}: {part!r} is not understood, only >=X and <X are")
    return True


def installed_vllm() -> str | None:
    """The version of the installed vLLM, or None. Reads metadata, imports nothing."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return None


def check_installed(vllm: str | None, *, matrix: Matrix, python: tuple[int, ...] = sys.version_info[:2]) -> Verdict:
    """The verdict on an installed vLLM; ``None``: there is none. A local part (``+empty``) is ignored."""
    command = "python -m vllm_tt_plugin.install_vllm"
    tested = ", ".join(matrix.versions)
    if vllm is None:
        return Verdict(
            False, f"vLLM is not installed: run `{command}` (installs {matrix.default.vllm}; tested: {tested})"
        )
    public = vllm.partition("+")[0]
    if public not in matrix.versions:
        fitting = [release.vllm for release in matrix.releases if admits(release.python, python)]
        advice = f"run `{command} --version {fitting[0]}`" if fitting else "no tested release runs on this Python"
        return Verdict(False, f"vLLM {vllm} was not tested with this plugin (tested: {tested}): {advice}")
    release = matrix.row(public)
    if not admits(release.python, python):
        here = ".".join(map(str, python))
        return Verdict(False, f"vLLM {vllm} was not tested on Python {here}: use Python {release.python}")
    return Verdict(True, "")
