"""The compat matrix: what it says about an installed vLLM, and that nothing in the workspace says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
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
def test_a_row_is_fine_when_it_is_tested_whatever_its_local_part(version: str) -> None:
    tested = MATRIX.row(version).status == "tested"
    assert compat.check_installed(version, matrix=MATRIX, python=(3, 12)).ok is tested
    assert compat.check_installed(f"{version}+empty", matrix=MATRIX, python=(3, 12)).ok is tested


def test_the_default_row_is_tested_and_so_is_every_row_that_the_packages_recommend() -> None:
    assert MATRIX.default.status == "tested"
    assert all(compat.newest_for(MATRIX, (3, minor)).status == "tested" for minor in (10, 11, 12, 13, 14))


def test_a_status_that_means_nothing_is_refused() -> None:
    wrong = document("0.9.1")
    wrong["release"][0]["status"] = "works for me"
    with pytest.raises(CompatError, match=r"status 'works for me' of 0\.9\.1: allowed tested or untested"):
        compat.parse(wrong)


def test_an_untested_row_goes_on_with_a_warning() -> None:
    matrix = document("0.9.1", "0.9.0")
    matrix["release"][1]["status"] = "untested"
    verdict = compat.check_installed("0.9.0", matrix=compat.parse(matrix), python=(3, 12))
    assert not verdict.ok
    assert not verdict.stops
    assert "--version 0.9.1" in verdict.message


def test_no_vllm_is_one_line_that_says_what_to_run() -> None:
    verdict = compat.check_installed(None, matrix=MATRIX)
    assert not verdict.ok
    assert "vLLM is not installed: run `python -m vllm_tt_plugin.install_vllm --version 0.33.0`" in verdict.message
    assert "\n" not in verdict.message


def test_an_unknown_release_is_answered_with_the_newest_row_that_this_python_runs() -> None:
    verdict = compat.check_installed("0.34.0", matrix=MATRIX, python=(3, 10))
    assert not verdict.ok
    assert "vLLM 0.34.0 is newer than 0.33.0, the newest release that this plugin knows: going on" in verdict.message
    assert f"--version {compat.newest_for(MATRIX, (3, 10)).vllm}" in verdict.message
    assert "--version 0.33.0" in compat.check_installed("0.34.0", matrix=MATRIX, python=(3, 12)).message


@pytest.mark.parametrize("version", ["0.34.0", "0.34.0rc1.dev3+g12ab", "1.0", "0.31.1", "0.33.0rc1"])
def test_an_unknown_release_is_one_warning_at_load_and_goes_on(version: str, caplog: pytest.LogCaptureFixture) -> None:
    compat.check_at_load(version, matrix=MATRIX, python=(3, 12))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.name == "vllm.tt.compat"
    assert "going on, untested; to be sure run `python -m vllm_tt_plugin.install_vllm" in record.getMessage()


def test_a_tested_row_is_loaded_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    compat.check_at_load("0.33.0+empty", matrix=MATRIX, python=(3, 12))
    assert caplog.records == []


@pytest.mark.parametrize("version", ["0.24.0", "0.9", "0.25.0"])
def test_a_release_older_than_every_row_stops_the_load(version: str) -> None:
    with pytest.raises(CompatError, match=r"is older than 0\.25\.1, the oldest supported release: run `"):
        compat.check_at_load(version, matrix=MATRIX, python=(3, 12))


LOAD = "import vllm; from vllm_tt_plugin.entrypoints import register; register(); print('loaded')"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.vllm
@pytest.mark.default_row
@pytest.mark.parametrize(("version", "goes_on"), [("0.34.0", True), ("0.20.0", False)])
def test_a_process_that_loads_the_plugin_is_told(version: str, goes_on: bool, tmp_path: Path) -> None:
    """The metadata of another release in front of the installed one."""
    metadata = tmp_path / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    environ = {**os.environ, "TT_RUNTIME": "host", "PYTHONPATH": str(tmp_path), "VLLM_PLUGINS": ""}
    done = subprocess.run([sys.executable, "-c", LOAD], env=environ, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert said.count(f"vLLM {version} is ") == 1
    assert ("loaded" in done.stdout) is goes_on
    assert (done.returncode == 0) is goes_on


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
