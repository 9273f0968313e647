"""The table of docs/families.md, from what the tests found.

`python tests/families/table.py --write [NAME ...]` runs the tests of all families, or of those named, keeps what they
found in tests/families/results, and writes the page. Without --write it prints the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
PAGE = ROOT / "docs" / "families.md"
WRITE_TO = "TT_FAMILY_RESULTS"
"""The variable that makes a run of the tests keep what it found in a folder."""

HEAD = """# Model families

What works for each kind of model, as found by `tests/families` with vLLM's real engine, the strict software mesh and a
small random model of that kind, whose tokens must be those of transformers (or of a plain loop, where transformers has
no such model), one request at a time. `python tests/families/table.py --write` runs the tests and writes this page.

*pass*: tested. *off*: asked for, and turned off by a [rule](rules.md) with a line in the log. *refused*: an error that
says why. *n/a*: no meaning for this kind of model.

"""


def found() -> dict[str, dict[str, Any]]:
    """The kept results by family."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def page(results: dict[str, dict[str, Any]]) -> str:
    """The text of docs/families.md."""
    features = list(next(iter(results.values()))["cells"])
    notes: list[str] = []
    lines = [f"| family | {' | '.join(features)} |", "|---" * (len(features) + 1) + "|"]
    for name, result in results.items():
        cells = [_cell(result["cells"][feature], notes) for feature in features]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    kinds = "".join(f"* `{name}`: {result['label']}\n" for name, result in results.items())
    marked = "".join(f"{number}. {note}\n" for number, note in enumerate(notes, 1))
    return HEAD + "\n".join(lines) + "\n\n" + kinds + "\n" + marked


def _cell(cell: dict[str, str], notes: list[str]) -> str:
    if cell["outcome"] == "pass":
        return "pass"
    if cell["note"] not in notes:
        notes.append(cell["note"])
    return f"{cell['outcome']} ({notes.index(cell['note']) + 1})"


def keep(folder: Path, family: str, label: str, features: tuple[str, ...], feature: str, cell: dict[str, str]) -> None:
    """Enter what a test found."""
    path = folder / f"{family}.json"
    cells: dict[str, Any] = json.loads(path.read_text())["cells"] if path.exists() else {}
    cells[feature] = cell
    ordered = {name: cells[name] for name in features if name in cells}
    path.write_text(json.dumps({"label": label, "cells": ordered}, indent=1) + "\n")


def write(names: list[str]) -> int:
    RESULTS.mkdir(exist_ok=True)
    for path in RESULTS.glob("*.json"):
        if not names or path.stem in names:
            path.unlink()
    command = [sys.executable, "-m", "pytest", "-q", str(HERE / "test_families.py"), "-m", "long or not long"]
    if names:
        command += ["-k", " or ".join(names)]
    return subprocess.run(command, env={**os.environ, WRITE_TO: str(RESULTS)}, check=False).returncode


if __name__ == "__main__":
    if "--write" in sys.argv:
        code = write([name for name in sys.argv[1:] if name != "--write"])
        PAGE.write_text(page(found()))
        sys.exit(code)
    print(page(found()), end="")
