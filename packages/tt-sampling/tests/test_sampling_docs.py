"""docs/sampling.md and the README say what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tt_sampling.reasons import Reason

PACKAGE = Path(__file__).parents[1]
PAGE = PACKAGE.parents[1] / "docs" / "sampling.md"


@pytest.mark.skipif(not PAGE.exists(), reason="not in the monorepo")
def test_every_reason_is_in_the_tables() -> None:
    page = PAGE.read_text()
    assert [reason for reason in Reason if f"`{reason.name}`" not in page or reason.value not in page] == []
    named = set(re.findall(r"`([A-Z][A-Z_]+)`", page))
    assert named - {"None"} <= {reason.name for reason in Reason}


def test_the_example_of_the_readme_runs() -> None:
    code = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code[1]], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:3] == ["True", "[1, 20] [None, 7]", "['LOGPROBS']"], done.stderr
