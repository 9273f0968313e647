"""The core without anything else: no third-party package, no engine, no device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
SOURCE = PACKAGE / "src"
EXAMPLE = PACKAGE.parents[1] / "examples" / "custom_engine.py"


def python(*arguments: str) -> str:
    """Run Python without site-packages: the standard library and tt-scheduler are all there is."""
    run = subprocess.run(
        [sys.executable, "-S", *arguments],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return run.stdout


def test_the_core_imports_with_the_standard_library_alone() -> None:
    code = (
        "import sys, tt_scheduler, tt_scheduler.simulate\n"
        "print(sorted(m for m in ('vllm', 'torch', 'ttnn', 'numpy', 'matplotlib') if m in sys.modules))\n"
        "print(all(hasattr(tt_scheduler, name) for name in tt_scheduler.__all__))"
    )
    assert python("-c", code).split("\n")[:2] == ["[]", "True"]


def test_a_custom_engine_runs_on_it_in_sixty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    lines = python(str(EXAMPLE)).splitlines()
    answers = [line for line in lines if "row" in line]
    assert sorted(line.split()[0] for line in answers) == ["r0", "r1", "r2", "r3", "r4", "r5"]
    assert all(line.count(",") == 4 for line in answers)
    phases = "".join(line[0] for line in lines if "row" not in line)
    assert set(phases) == {"p", "d"}
    # Two prefill steps at most while somebody decodes.
    assert "ppp" not in phases[phases.index("d") :]


def test_the_readme_example_runs() -> None:
    readme = (PACKAGE / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    python("-c", code)
