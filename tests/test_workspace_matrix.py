"""The compat matrix's results: what a run leaves, and what the matrix may say because of it."""

from __future__ import annotations

from pathlib import Path

import matrix
import pytest

from vllm_tt_plugin import compat

MATRIX = compat.load()
COUNTS = 'tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}" time="1"'
SUITE = f"<testsuites><testsuite {COUNTS}/></testsuites>"


def test_a_rows_result_adds_its_suites_and_a_suite_without_a_report_is_a_failure(tmp_path: Path) -> None:
    """A crash of pytest must not look like a suite without tests."""
    reports = [tmp_path / "one.xml", tmp_path / "two.xml"]
    reports[0].write_text(SUITE.format(tests=10, failures=0, skipped=2))
    assert not matrix.result_of(reports, 61.4).green
    reports[1].write_text(SUITE.format(tests=5, failures=0, skipped=0))
    result = matrix.result_of(reports, 61.4)
    assert (result.green, str(result)) == (True, "13 passed, 0 failed, 2 skipped, 1 min 01 s")
    reports[1].write_text(SUITE.format(tests=5, failures=1, skipped=0))
    assert not matrix.result_of(reports, 61.4).green


def test_results_are_kept_in_the_order_of_the_rows_and_forgotten_with_them(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    one = matrix.Result(passed=1, failed=0, skipped=0, seconds=2)
    matrix.save({"0.1": one, "0.2": one, "0.3": one}, ["0.3", "0.1"], file)
    assert list(matrix.load(file).items()) == [("0.3", one), ("0.1", one)]
    assert matrix.load(tmp_path / "none.json") == {}


@pytest.mark.parametrize("version", MATRIX.versions)
def test_a_row_is_called_tested_when_its_last_run_was_green_and_only_then(version: str) -> None:
    """`nox -s compat -- VERSION` runs it."""
    result = matrix.load().get(version)
    assert (MATRIX.row(version).status == "tested") == (result is not None and result.green)
