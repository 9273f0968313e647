"""The compat matrix: which vLLM releases this plugin was tested with, and what to say about an installed one.

Standard library only: it is read before anything is installed, and in every vLLM process.
"""

from __future__ import annotations

import logging
import re
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


logger = logging.getLogger("vllm.tt.compat")

STATUSES = ("tested", "untested")
COMMAND = "python -m vllm_tt_plugin.install_vllm"


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
    """What the matrix says about an installed vLLM.

    ok:       it is a tested row, on a Python of the row
    message:  otherwise one line: what is wrong, what that means, what to run
    stops:    the plugin refuses to load; without it the message is a warning and loading goes on
    """

    ok: bool
    message: str
    stops: bool = False


def numbers(text: str) -> tuple[int, ...]:
    """``0.33.0`` -> (0, 33, 0). Raises ValueError for anything but dotted integers."""
    return tuple(int(part) for part in text.split("."))


def leading_numbers(text: str) -> tuple[int, ...]:
    """The release part of any version: ``0.34.0rc1.dev3+g12`` -> (0, 34, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return numbers(match[0]) if match else ()


def parse(document: Mapping[str, Any]) -> Matrix:
    """The matrix of a parsed compat.toml. CompatError for a default without a row, TypeError for an unknown field."""
    releases = sorted((Release(**row) for row in document["release"]), key=lambda release: release.key, reverse=True)
    rows = {release.vllm: release for release in releases}
    for release in releases:
        if release.status not in STATUSES:
            raise CompatError(
                f"compat.toml: status {release.status!r} of {release.vllm}: allowed {' or '.join(STATUSES)}"
            )
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


def newest_for(matrix: Matrix, python: tuple[int, ...]) -> Release | None:
    """The newest tested row for a Python; an untested one when there is no other."""
    fitting = [release for release in matrix.releases if admits(release.python, python)]
    return next((release for release in fitting if release.status == "tested"), fitting[0] if fitting else None)


def check_installed(vllm: str | None, *, matrix: Matrix, python: tuple[int, ...] = sys.version_info[:2]) -> Verdict:
    """The verdict on an installed vLLM; ``None``: there is none. A local part (``+empty``) is ignored.

    A release that is no row is served with a warning: what differs between releases is probed, so most of a newer one
    works, and what does not fails where it is used. One older than every row is refused: names that the adapters
    import are not there yet.
    """
    here = ".".join(map(str, python))
    fitting = newest_for(matrix, python)
    advice = f"run `{COMMAND} --version {fitting.vllm}`" if fitting else f"no tested release runs on Python {here}"
    if vllm is None:
        return Verdict(False, f"vLLM is not installed: {advice}", stops=True)
    public = vllm.partition("+")[0]
    if public in matrix.versions:
        return _check_row(vllm, matrix.row(public), python, advice)
    newest, oldest = matrix.versions[0], matrix.versions[-1]
    if leading_numbers(public) < numbers(oldest):
        return Verdict(False, f"vLLM {vllm} is older than {oldest}, the oldest supported release: {advice}", stops=True)
    if leading_numbers(public) > numbers(newest):
        what = f"is newer than {newest}, the newest release that this plugin knows"
        return Verdict(False, f"vLLM {vllm} {what}: going on, untested; to be sure {advice}")
    return Verdict(False, f"vLLM {vllm} is not in the compat matrix: going on, untested; to be sure {advice}")


def _check_row(vllm: str, release: Release, python: tuple[int, ...], advice: str) -> Verdict:
    if not admits(release.python, python):
        here = ".".join(map(str, python))
        return Verdict(False, f"vLLM {vllm} does not support Python {here}: use Python {release.python}, or {advice}")
    if release.status != "tested":
        return Verdict(False, f"vLLM {vllm} is in the compat matrix, but untested: going on; to be sure {advice}")
    return Verdict(True, "")


def check_at_load(vllm: str | None, *, matrix: Matrix, python: tuple[int, ...] = sys.version_info[:2]) -> None:
    """The check of a starting process: a warning of one line, or CompatError when the plugin cannot work."""
    verdict = check_installed(vllm, matrix=matrix, python=python)
    if verdict.stops:
        raise CompatError(verdict.message)
    if not verdict.ok:
        logger.warning("%s", verdict.message)
