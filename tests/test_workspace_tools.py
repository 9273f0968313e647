"""The tools behind make and nox."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bootstrap
import pythons
import tally
from tally import Counts

from vllm_tt_plugin import compat

MATRIX = compat.load()
JUNIT = """<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1" time="2.5"/></testsuites>"""
PASSED = """<testsuites><testsuite tests="3" failures="0" errors="0" skipped="0" time="1.0"/></testsuites>"""


def test_counts_of_a_report_are_passed_failed_and_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(JUNIT)
    assert tally.read(tmp_path / "a.xml") == Counts(passed=2, failed=2, skipped=1, seconds=2.5)


def test_the_last_line_adds_all_suites_up_and_one_failure_fails(tmp_path: Path, capsys) -> None:
    (tmp_path / "a.xml").write_text(PASSED)
    assert tally.main(tmp_path) == 0
    (tmp_path / "b.xml").write_text(JUNIT)
    assert tally.main(tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 2 failed, 1 skipped"


def test_no_test_at_all_is_a_failure(tmp_path: Path) -> None:
    assert tally.main(tmp_path) == 1


def test_the_running_python_is_found_by_its_version() -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    environ = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    assert pythons.find(version, environ) is not None


def test_a_shim_that_stands_for_nothing_is_passed_over_for_the_next_candidate(tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "python3.12"
    real = tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python"
    for path, script in ((shim, "exit 127"), (real, "echo 3.12")):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    environ = {"PATH": str(shim.parent), "PYENV_ROOT": str(tmp_path / "pyenv"), "HOME": str(tmp_path)}
    assert pythons.find("3.12", environ) == real
    assert pythons.find("3.9", environ) is None


def workspace(root: Path) -> Path:
    (root / "packages" / "a").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "packages" / "a" / "pyproject.toml").write_text("[project]\n")
    return root


def test_an_environment_is_made_again_when_a_pyproject_or_the_row_changes(tmp_path: Path) -> None:
    newest, oldest = MATRIX.releases[0], MATRIX.releases[-1]
    root = workspace(tmp_path)
    before = bootstrap.fingerprint(newest, root)
    assert bootstrap.fingerprint(newest, root) == before
    assert bootstrap.fingerprint(oldest, root) != before
    (root / "packages" / "a" / "pyproject.toml").write_text("[project]\nversion = '2'\n")
    assert bootstrap.fingerprint(newest, root) != before


def test_the_stamp_keeps_what_was_noted_before(tmp_path: Path) -> None:
    environment = bootstrap.Environment(tmp_path)
    assert environment.made() == {}
    environment.note(base="here")
    environment.note(run="1")
    assert environment.made() == {"base": "here", "run": "1"}


def test_a_broken_stamp_counts_as_none(tmp_path: Path) -> None:
    environment = bootstrap.Environment(tmp_path)
    environment.stamp.write_text("{")
    assert environment.made() == {}


def test_uv_uses_the_index_and_the_certificate_of_pip_and_links_within_a_disk() -> None:
    config = ":env:.cert='/etc/ca.crt'\n:env:.find-links='/srv'\nglobal.index-url='https://index.example/simple'\n"
    assert bootstrap.uv_settings(config, same_disk=True) == {
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "SSL_CERT_FILE": "/etc/ca.crt",
        "UV_LINK_MODE": "hardlink",
    }
    assert bootstrap.uv_settings("", same_disk=False) == {}
