"""The generated parts of the README, and the commands that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import readme

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_support_matrix_is_that_of_compat_toml() -> None:
    """Fails when a row changes: run `python tools/readme.py`."""
    assert readme.rendered(README) == README


def test_a_text_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="found 0"):
        readme.rendered("# no block\n")


def test_every_make_target_that_the_readme_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_every_file_that_the_readme_links_to_is_there() -> None:
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", README)
    assert [path for path in linked if not (ROOT / path).exists()] == []
