"""The examples of the README run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_readme_runs(number):
    pytest.importorskip("tt_hostmesh")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("TT_", "MESH_"))}
    ended = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]],
        env={**environ, "TT_RUNTIME": "host"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_the_module_table_is_complete():
    """Fails when a module is added or renamed and the table of the README is not."""
    source = README.parent / "src/tt_platform"
    modules = {p.stem for p in source.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    rows = re.findall(r"^\| (`.*?`) \|", README.read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert modules - {"__init__", "__main__"} == named
