"""docs/scheduling.md names a test for every rule, and every one of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parents[2] / "docs" / "scheduling.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the documentation is not part of a package's archive")


def defined() -> set[str]:
    return {name for path in TESTS.glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) > 40
    assert named - defined() == set()


def test_every_rule_has_a_row_and_a_test_of_its_number() -> None:
    rows = re.findall(r"^\| ([SITALRVBP]\d) \| .* \| (`test_\w+`.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len({rule for rule, _ in rows}) > 30
    assert all(f"test_{rule}_" in tests for rule, tests in rows)
    numbered = {match for name in defined() for match in re.findall(r"^test_([SITALRVBP]\d)_", name)}
    assert numbered == {rule for rule, _ in rows}
