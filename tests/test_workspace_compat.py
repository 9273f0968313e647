"""The compat matrix: what it says about an installed vLLM, and that nothing in the workspace says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st

from vllm_tt_plugin import compat
from vllm_tt_plugin.compat import CompatError

ROOT = Path(__file__).parents[1]
MATRIX = compat.load()
PYPROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml"))]


def document(*versions: str, default: str | None = None) -> dict[str, Any]:
    fields = {"python": ">=3.11,<3.15", "torch": "2.13.0", "transformers": ">=5", "status": "tested", "notes": ""}
    return {"default": default or versions[0], "release": [{"vllm": version, **fields} for version in versions]}


@pytest.mark.parametrize("path", PYPROJECTS, ids=lambda path: path.parent.name)
def test_the_vllm_extra_of_every_package_is_the_range_of_the_matrix(path: Path) -> None:
    extras = tomllib.loads(path.read_text())["project"].get("optional-dependencies", {})
    if path.parent.name == "tt-hostmesh":
        assert "vllm" not in extras
    else:
        assert extras["vllm"] == [MATRIX.requirement]


def test_the_range_goes_from_the_oldest_row_to_below_the_minor_after_the_newest() -> None:
    assert compat.parse(document("0.9.1", "0.10.0", "0.8.5")).requirement == "vllm>=0.8.5,<0.11"


def test_rows_are_ordered_by_number_not_by_text() -> None:
    assert compat.parse(document("0.9.1", "0.10.0")).versions == ("0.10.0", "0.9.1")


def test_a_default_without_a_row_is_refused() -> None:
    with pytest.raises(CompatError, match=r"default '1\.0\.0' is not a row: allowed 0\.9\.1"):
        compat.parse(document("0.9.1", default="1.0.0"))


def test_a_row_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(CompatError, match=r"vLLM 9\.9\.9 is not in the compat matrix: allowed 0\.33\.0"):
        MATRIX.row("9.9.9")


@pytest.mark.parametrize("version", MATRIX.versions)
def test_a_row_is_fine_whatever_its_local_part(version: str) -> None:
    assert compat.check_installed(version, matrix=MATRIX, python=(3, 12)).ok
    assert compat.check_installed(f"{version}+empty", matrix=MATRIX, python=(3, 12)).ok


def test_no_vllm_is_one_line_that_says_what_to_run() -> None:
    verdict = compat.check_installed(None, matrix=MATRIX)
    assert not verdict.ok
    assert "vLLM is not installed: run `python -m vllm_tt_plugin.install_vllm`" in verdict.message
    assert "\n" not in verdict.message


def test_an_unknown_release_is_answered_with_the_newest_row_that_this_python_runs() -> None:
    verdict = compat.check_installed("0.34.0", matrix=MATRIX, python=(3, 10))
    assert not verdict.ok
    assert "vLLM 0.34.0 was not tested" in verdict.message
    assert "--version 0.26.0" in verdict.message
    assert "--version 0.33.0" in compat.check_installed("0.34.0", matrix=MATRIX, python=(3, 12)).message


def test_a_row_on_a_python_that_it_does_not_cover_is_not_fine() -> None:
    verdict = compat.check_installed("0.33.0", matrix=MATRIX, python=(3, 10))
    assert not verdict.ok
    assert "Python 3.10" in verdict.message


@given(st.tuples(st.integers(0, 9), st.integers(0, 40)), st.tuples(st.integers(0, 9), st.integers(0, 40)))
def test_a_range_holds_its_lower_end_and_not_its_upper_one(low: tuple[int, int], high: tuple[int, int]) -> None:
    spec = f">={low[0]}.{low[1]},<{high[0]}.{high[1]}"
    assert compat.admits(spec, low) == (low < high)
    assert not compat.admits(spec, high)


def test_a_range_that_is_not_understood_is_refused() -> None:
    for spec in ("~=3.11", ">3.11", "<=3.14"):
        with pytest.raises(CompatError, match="not understood"):
            compat.admits(spec, (3, 12))
