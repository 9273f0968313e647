"""Writes the generated parts of README.md: ``python tools/readme.py``. A test fails when they have drifted."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import matrix  # noqa: E402

from vllm_tt_plugin import compat  # noqa: E402


def matrix_table(rows: compat.Matrix, results: Mapping[str, matrix.Result]) -> str:
    """The support matrix in markdown, newest release first."""
    lines = ["| vLLM | Python | torch | transformers | status | tests on it | notes |", "|---|---|---|---|---|---|---|"]
    for release in rows.releases:
        name = f"**{release.vllm}** (default)" if release == rows.default else release.vllm
        said = str(results.get(release.vllm, ""))
        versions = (f"`{release.python}`", release.torch, f"`{release.transformers}`")
        cells = (name, *versions, release.status, said, release.notes)
        lines.append(f"| {' | '.join(cells)} |".replace("  |", " |"))
    return "\n".join(lines)


def with_block(text: str, name: str, content: str) -> str:
    """The text with what is between ``<!-- name -->`` and ``<!-- /name -->`` replaced; ValueError when it has none."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda match: f"{match[1]}{content}\n{match[2]}", text)
    if count != 1:
        raise ValueError(f"expected one block <!-- {name} --> ... <!-- /{name} -->, found {count}")
    return replaced


def rendered(text: str) -> str:
    return with_block(text, "compat matrix", matrix_table(compat.load(), matrix.load()))


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(rendered(readme.read_text()))
