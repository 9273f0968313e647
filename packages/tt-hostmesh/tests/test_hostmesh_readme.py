"""The README's example runs and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60, env={})
    assert run.stderr == ""
    assert run.stdout.splitlines()[0].endswith("ran in the device's thread")
    assert run.stdout.splitlines()[-1] == "0"


def test_every_machine_of_the_table_is_listed():
    from tt_hostmesh.clusters import CLUSTERS

    text = README.read_text()
    assert all(re.search(rf"\b{re.escape(name)}\b", text) for name in CLUSTERS)


def test_every_module_is_in_the_table():
    package = README.parent / "src" / "tt_hostmesh"
    modules = {p.stem for p in package.glob("*.py")} - {"__init__", "errors"}
    folders = {p.name for p in package.iterdir() if (p / "__init__.py").is_file()}
    listed = set(re.findall(r"`(\w+)/?`", README.read_text()))
    assert modules | folders <= listed
