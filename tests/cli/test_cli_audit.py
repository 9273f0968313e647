"""The five points of ``vllm-tt audit``: each passes with its evidence, and each is made to fail on purpose."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from base64 import urlsafe_b64encode
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from vllm_tt_plugin import compat
from vllm_tt_plugin.cli import app, audit, inventory
from vllm_tt_plugin.cli.points import cadence, interface, isolation, patched, pinning, scheduling
from vllm_tt_plugin.cli.points.finding import Finding
from vllm_tt_plugin.cli.points.scheduling import Limits
from vllm_tt_plugin.serving import ServerError

MATRIX = compat.load()
auditing = sys.modules["vllm_tt_plugin.cli.audit"]
assert audit is not None

# 1. Upstream cadence


def test_the_newest_release_is_a_tested_row() -> None:
    newest = MATRIX.default.vllm
    assert cadence.judge(newest, MATRIX).verdict == "pass"
    assert cadence.judge(newest.rpartition(".")[0] + ".9", MATRIX).verdict == "pass"


def test_a_release_that_is_no_row_fails_and_says_what_to_run() -> None:
    finding = cadence.judge("0.34.0", MATRIX)
    assert finding.verdict == "fail"
    assert finding.evidence[0] == "vLLM 0.34.0 is no row of the compat matrix"
    assert "nox -s surface -- 0.34.0" in finding.do


def test_a_release_whose_row_is_untested_fails() -> None:
    newest = MATRIX.releases[0]
    matrix = replace(MATRIX, releases=(replace(newest, status="untested"), *MATRIX.releases[1:]))
    finding = cadence.judge(newest.vllm, matrix)
    assert finding.verdict == "fail"
    assert finding.evidence[0] == f"the row of vLLM {newest.vllm} is untested"


def test_offline_is_said_and_is_no_pass() -> None:
    finding = cadence.judge(None, MATRIX)
    assert finding.verdict == "unknown"
    assert any("offline" in line for line in finding.evidence)


def test_an_index_that_does_not_answer_gives_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cadence, "_output", lambda argv, given="": "")
    monkeypatch.setattr(cadence.install_vllm, "find_uv", lambda python: "uv")
    assert cadence.newest_release() is None


@pytest.mark.parametrize(
    ("pip", "said"),
    [(True, "vllm (0.34.0)\nAvailable versions: 0.34.0, 0.33.0\n"), (False, "vllm==0.34.0\n    # via -r -\n")],
)
def test_the_answer_of_pip_and_of_uv_is_read(pip: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cadence, "find_spec", lambda name: object() if pip else None)
    monkeypatch.setattr(cadence, "_output", lambda argv, given="": said)
    monkeypatch.setattr(cadence.install_vllm, "find_uv", lambda python: "uv")
    assert cadence.newest_release() == "0.34.0"


# 2. Core isolation


@pytest.fixture
def core(tmp_path: Path) -> Distribution:
    """An installed package vllm of one module, with its RECORD."""
    module, info = tmp_path / "vllm" / "engine.py", tmp_path / "vllm-1.0.dist-info"
    module.parent.mkdir()
    info.mkdir()
    module.write_text("def run(): ...\n")
    digest = urlsafe_b64encode(hashlib.sha256(module.read_bytes()).digest()).rstrip(b"=").decode()
    (info / "METADATA").write_text("Name: vllm\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"vllm/engine.py,sha256={digest},15\n")
    return Distribution.at(info)


def looked_at(core: Distribution) -> Finding:
    folder = Path(str(core.locate_file("vllm")))
    extra = isolation.extra_files(core, folder)
    return isolation.judge(isolation.differing(core), isolation.vendor_symbols(folder), ([], 1), extra)


def test_a_core_as_it_was_installed_passes_and_says_how_much_was_looked_at(core: Distribution) -> None:
    finding = looked_at(core)
    assert finding.verdict == "pass"
    assert finding.evidence[:2] == ("1 files compared with RECORD", "1 files searched for vendor symbols")


def test_an_edited_file_of_the_core_fails(core: Distribution) -> None:
    Path(str(core.locate_file("vllm/engine.py"))).write_text("def run(): return 1\n")
    assert looked_at(core).evidence[0] == "vllm/engine.py is not what was installed"


def test_a_deleted_and_an_added_file_fail(core: Distribution) -> None:
    Path(str(core.locate_file("vllm/engine.py"))).unlink()
    Path(str(core.locate_file("vllm/added.py"))).touch()
    assert looked_at(core).evidence[:2] == ("vllm/engine.py is missing", "vllm/added.py was not installed")


def test_a_vendor_symbol_in_the_core_fails(core: Distribution) -> None:
    Path(str(core.locate_file("vllm/engine.py"))).write_text("x = 1\nimport ttnn\n")
    assert "vllm/engine.py:2 names the vendor: import ttnn" in looked_at(core).evidence


@pytest.mark.parametrize("word", ["SparseAttnNorm", "attn_quant", "batttnn", "listtnn"])
def test_a_word_that_only_contains_a_symbol_is_none(word: str) -> None:
    assert isolation.VENDOR.search(word) is None


def test_a_patched_function_and_a_patched_method_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that stands for vLLM, into which a function and a method of ours were put."""
    module = ModuleType("fakecore.engine")
    exec("class Engine:\n    def run(self): ...\n    def stop(self): ...\ndef start(): ...\n", vars(module))
    monkeypatch.setitem(sys.modules, "fakecore.engine", module)
    assert patched.patches("fakecore")[0] == []
    module.start = cadence.newest_release
    module.Engine.run = scheduling.longest_streak
    found, looked = patched.patches("fakecore")
    assert sorted(found) == ["fakecore.engine.Engine.run", "fakecore.engine.start"]
    assert looked > 3
    finding = isolation.judge(([], 0), ([], 0), (found, looked))
    assert finding.verdict == "fail"
    assert finding.evidence[0].startswith("patched at run time: ")


@pytest.mark.vllm
@pytest.mark.slow
def test_a_plugin_that_puts_a_method_of_ours_into_vllm_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that the audit starts, with the installed vLLM: an entry point replaces a method there."""
    (tmp_path / "patching.py").write_text(
        "def register():\n"
        "    from vllm import SamplingParams\n"
        "    from vllm_tt_plugin.cli.points.scheduling import longest_streak\n"
        "    SamplingParams.clone = longest_streak\n"
    )
    info = tmp_path / "patching-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patching\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\npatching = patching:register\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    finding = isolation.judge(([], 0), ([], 0), isolation.patched())
    assert finding.verdict == "fail"
    assert finding.evidence[0] == "patched at run time: vllm.sampling_params.SamplingParams.clone"


# 3. Build pinning


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    packages = {name: {"version": "1.0", "sha256": "a" * 64, "editable": False} for name in pinning.NEEDED}
    build = {
        "target": "empty",
        "row": {"vllm": "0.33.0"},
        "variables": {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": "0.33.0"},
        "command": ["python", "-m", "pip", "wheel", "--no-binary", "vllm", "vllm==0.33.0"],
    }
    return {"format": 1, "packages": packages, "vllm_build": build}


def test_a_pinned_build_passes(manifest: dict[str, Any]) -> None:
    assert pinning.judge(manifest, manifest, manifest).verdict == "pass"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("vllm_build", "target"), "device", "built for the target device, not empty"),
        (("vllm_build", "command"), ["pip", "install", "vllm"], "does not name one version"),
        (("vllm_build", "variables"), {}, "does not build for the empty target"),
        (("packages", "torch"), None, "torch is not installed"),
        (("packages", "torch"), {"version": "1.0", "sha256": None, "editable": False}, "torch has no hash"),
        (("packages", "vllm"), {"version": "2.0", "sha256": "b" * 64, "editable": False}, "differs from the fleet's"),
    ],
)
def test_an_unpinned_build_fails(manifest: dict[str, Any], path: tuple[str, str], value: Any, said: str) -> None:
    changed = copy.deepcopy(manifest)
    changed[path[0]][path[1]] = value
    finding = pinning.judge(changed, changed, manifest)
    assert finding.verdict == "fail"
    assert any(said in line for line in finding.evidence)


def test_a_manifest_that_is_not_reproducible_fails(manifest: dict[str, Any]) -> None:
    other = copy.deepcopy(manifest)
    other["packages"]["torch"]["sha256"] = "c" * 64
    assert "not reproducible: packages.torch.sha256" in pinning.judge(manifest, other).evidence[0]


def test_a_release_without_a_row_has_no_recipe(manifest: dict[str, Any]) -> None:
    changed = copy.deepcopy(manifest)
    del changed["vllm_build"]["row"]
    assert "no row of the compat matrix" in pinning.judge(changed, changed).evidence[0]


@pytest.mark.vllm
def test_the_recipe_of_this_environment_is_pinned() -> None:
    assert pinning.recipe(inventory.take()["vllm_build"]) == []


# 4. Scheduler constraints

LIMITS = Limits(rows=4, tokens=64, streak=2)


def steps(text: str) -> list[dict[str, Any]]:
    """``PPD``: a prefill step, another, a decode step."""
    names = {"P": "prefill", "D": "decode", "M": "mixed"}
    return [
        {"step": i, "phase": names[letter], "requests": 2, "tokens": 2 if letter == "D" else 30}
        for i, letter in enumerate(text, 1)
    ]


def test_pure_steps_within_the_limits_pass_and_are_counted() -> None:
    finding = scheduling.judge(steps("PPPDPPDDPD"), LIMITS, 9, 9)
    assert finding.verdict == "pass"
    assert finding.evidence[0] == "steps: 6 prefill, 4 decode, 0 mixed, 0 empty"


@pytest.mark.parametrize(
    ("log", "asked", "said"),
    [
        (steps("PDMD"), 1, "is mixed"),
        (steps("PDPPPD"), 1, "3 prefill steps in a row"),
        (steps("DD"), 1, "not mixed"),
        (steps("PD"), 2, "1 of 2 output tokens came"),
        ([*steps("PD"), {"step": 3, "phase": "decode", "requests": 2, "tokens": 5}], 1, "decodes 5 tokens for 2"),
        ([*steps("PD"), {"step": 3, "phase": "decode", "requests": 5, "tokens": 5}], 1, "has 5 rows, 4 fit"),
        ([*steps("PD"), {"step": 3, "phase": "prefill", "requests": 1, "tokens": 65}], 1, "the budget is 64"),
    ],
)
def test_a_step_against_the_rules_fails(log: list[dict[str, Any]], asked: int, said: str) -> None:
    finding = scheduling.judge(log, LIMITS, asked, 1)
    assert finding.verdict == "fail"
    assert any(said in line for line in finding.evidence)


# 5. API compatibility

SCHEMA = {
    "paths": {"/v1/models": {"get": {"summary": "Models"}}, "/health": {}},
    "components": {"schemas": {"Model": {"properties": {"id": {"type": "string"}}}}},
}


def test_the_same_schema_passes() -> None:
    assert interface.judge(SCHEMA, copy.deepcopy(SCHEMA), "1.0").verdict == "pass"


def test_every_difference_of_the_schema_is_printed() -> None:
    ours = copy.deepcopy(SCHEMA)
    ours["paths"]["/v1/tt"] = ours["paths"].pop("/health")
    ours["components"]["schemas"]["Model"]["properties"]["id"]["type"] = "integer"
    finding = interface.judge(SCHEMA, ours, "1.0")
    assert finding.verdict == "fail"
    assert finding.evidence[:3] == (
        "path /health of stock vLLM is missing",
        "path /v1/tt is not in stock vLLM",
        'schema Model.properties.id.type: "string" -> "integer"',
    )


# The report


def findings(*verdicts: str) -> list[Finding]:
    return [Finding(f"point {i}", verdict, ("evidence",), "this") for i, verdict in enumerate(verdicts)]


def test_the_exit_code_follows_the_verdicts() -> None:
    assert auditing.code_of(findings("pass", "pass")) == 0
    assert auditing.code_of(findings("pass", "unknown")) == 3
    assert auditing.code_of(findings("unknown", "fail")) == 1


def test_the_report_has_a_table_and_the_evidence_of_each_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(auditing, "look", lambda pinned, offline: findings("pass", "fail"))
    done = CliRunner().invoke(app, ["audit", "--report", str(tmp_path / "audit.md")])
    assert done.exit_code == 1
    assert "| point 1 | fail |" in done.stdout
    assert "## Point 1: fail\n\n* evidence\n\nDo: this" in done.stdout
    assert (tmp_path / "audit.md").read_text() == done.stdout
    assert len(json.loads(CliRunner().invoke(app, ["audit", "--json"]).stdout)) == 2


def test_a_server_that_does_not_start_is_no_evidence_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise ServerError("the server ended with code 1\nValueError: no such thing")

    monkeypatch.setattr(auditing.trial, "available", lambda: True)
    monkeypatch.setattr(auditing.trial, "run", fails)
    monkeypatch.setattr(auditing.compat, "installed_vllm", lambda: "0.33.0")
    for finding in auditing.served():
        assert finding.verdict == "unknown"
        assert "ValueError: no such thing" in finding.evidence


def test_without_vllm_or_the_software_mesh_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing.compat, "installed_vllm", lambda: "0.33.0")
    monkeypatch.setattr(auditing.trial, "available", lambda: False)
    assert {finding.do for finding in auditing.served()} == {
        "install the software mesh: `pip install 'vllm-tt-plugin[host]'`"
    }
    monkeypatch.setattr(auditing.compat, "installed_vllm", lambda: None)
    assert {finding.do for finding in auditing.served()} == {"`vllm-tt install-vllm`"}


def test_a_report_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(auditing, "look", lambda pinned, offline: findings("pass"))
    done = CliRunner().invoke(app, ["audit", "--report", str(tmp_path / "none" / "audit.md")])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.default_row
@pytest.mark.vllm
@pytest.mark.engine
def test_the_audit_of_this_environment_passes_and_serves_as_stock_vllm_does() -> None:
    """The whole of it, but for the package index: a server on the software mesh, once."""
    done = CliRunner().invoke(app, ["audit", "--offline", "--json"])
    verdicts = {finding["point"]: finding for finding in json.loads(done.stdout)}
    assert [f["verdict"] for f in verdicts.values()] == ["unknown", "pass", "pass", "pass", "pass"], done.stdout
    assert done.exit_code == 3
    assert "0 mixed" in verdicts["scheduler constraints"]["evidence"][0]
