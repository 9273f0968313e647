"""Every verb of ``vllm-tt``: its answer, its JSON, its exit code, and its errors of one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tt_platform.detect import Fact, Facts
from vllm_tt_plugin import compat, install_vllm
from vllm_tt_plugin.cli import app, doctor, inventory
from vllm_tt_plugin.cli.answer import Check

VERBS = ["doctor", "models", "compat", "manifest", "audit", "install-vllm", "simulate"]
doctoring = sys.modules["vllm_tt_plugin.cli.doctor"]
installing = sys.modules["vllm_tt_plugin.cli.install_vllm"]


def run(*arguments: str, **environ: str) -> Any:
    return CliRunner().invoke(app, arguments, env={"TT_RUNTIME": "host", **environ})


def answer(*arguments: str, **environ: str) -> Any:
    done = run(*arguments, "--json", **environ)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return json.loads(done.stdout)


def test_there_is_a_verb_for_each_thing() -> None:
    command: Any = typer.main.get_command(app)
    assert sorted(command.commands) == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_what_it_does_and_takes_json(verb: str) -> None:
    done = run(verb, "--help")
    assert done.exit_code == 0
    if verb != "simulate":  # its help is the simulator's own
        assert "--json" in done.stdout


# doctor


def facts(**given: Fact) -> Facts:
    here = {name: Fact("1", "a test") for name in Facts.__dataclass_fields__}
    return Facts(**{**here, "runtime": Fact("ttnn", "a test"), **given})


def states(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def test_doctor_on_the_software_mesh_needs_no_ttnn_and_no_driver() -> None:
    absent = Fact(None, "not here")
    checks = doctoring.machine(facts(runtime=Fact("host", "TT_RUNTIME is set"), ttnn=absent, driver=absent))
    assert set(states(checks).values()) == {"ok"}


@pytest.mark.parametrize(("name", "check"), [("ttnn", "ttnn"), ("chips", "chips"), ("driver", "driver")])
def test_doctor_on_a_card_needs_each(name: str, check: str) -> None:
    checks = doctoring.machine(facts(**{name: Fact(None, "not here; install it")}))
    assert states(checks)[check] == "fail"
    assert doctoring.next_step(checks) == f"{check}: not here; install it"


def test_doctor_tells_a_missing_plugin_name_and_the_value_to_set() -> None:
    check = doctoring.plugins_variable({"VLLM_PLUGINS": "mine,tt"})
    assert (check.state, check.do) == ("fail", "set VLLM_PLUGINS=mine,tt,tt_model_registry or unset it")
    assert doctoring.plugins_variable({}).state == "ok"
    assert doctoring.plugins_variable({"VLLM_PLUGINS": "tt,tt_model_registry"}).state == "ok"


def test_doctor_tells_a_target_device_that_hides_the_plugin() -> None:
    assert doctoring.target_variable({"VLLM_TARGET_DEVICE": "cpu"}).state == "fail"
    assert doctoring.target_variable({"VLLM_TARGET_DEVICE": "empty"}).state == "ok"


def test_doctor_tells_what_the_matrix_says_about_vllm() -> None:
    assert doctoring.vllm_row("0.33.0", (3, 12)).state == "ok"
    assert doctoring.vllm_row("0.34.0", (3, 12)).state == "warn"
    assert doctoring.vllm_row("0.20.0", (3, 12)).state == "fail"
    assert doctoring.vllm_row(None, (3, 12)).state == "fail"


@pytest.mark.vllm
def test_doctor_finds_this_environment_able_to_serve_on_the_software_mesh() -> None:
    found = answer("doctor")
    assert found["verdict"] in ("ok", "warn"), found
    assert {check["name"] for check in found["checks"]} >= {"ttnn", "chips", "mesh", "driver", "vLLM", "models"}


def test_doctor_ends_with_1_when_this_environment_cannot_serve() -> None:
    done = run("doctor", VLLM_PLUGINS="other")
    assert done.exit_code == 1
    assert "VLLM_PLUGINS" in done.stdout


def test_doctor_tells_an_override_that_cannot_be_read() -> None:
    done = run("doctor", TT_MODEL_CLASS_OVERRIDES="broken")
    assert done.exit_code == 1
    assert "entry 'broken': there is no '='" in done.stdout


def test_of_several_faults_the_worst_comes_first() -> None:
    assert doctoring.next_step([Check("a", "warn", "", "A"), Check("b", "fail", "", "B")]) == "b: B"
    assert doctoring.next_step([Check("a", "ok", "")]).startswith("serve")
    assert doctor is not None


# models, compat, simulate


def test_models_lists_what_is_served_and_one_in_full() -> None:
    names = {each["architecture"] for each in answer("models")}
    assert "LlamaForCausalLM" in names
    assert answer("models", "LlamaForCausalLM")["target"].startswith("tt_hostmesh.")
    assert "LlamaForCausalLM" in run("models").stdout


def test_models_of_ttnn_are_listed_without_tt_metal_and_say_why_they_do_not_import() -> None:
    found = answer("models", "--runtime", "ttnn")
    assert len(found) > 10
    assert all(each["importable"] or each["reason"] for each in found)


def test_an_unknown_architecture_is_one_line() -> None:
    done = run("models", "NoSuchModel")
    assert done.exit_code == 2
    assert done.stderr.startswith("vllm-tt models: ")
    assert done.stderr.count("\n") == 1


def test_compat_shows_every_row_and_how_to_move_there() -> None:
    found = answer("compat")
    assert [each["vllm"] for each in found["releases"]] == list(compat.load().versions)
    moves = {each["vllm"]: each["move"] for each in found["releases"] if not each["here"]}
    assert all(move.startswith(("vllm-tt install-vllm --version ", "needs Python")) for move in moves.values())
    assert run("compat").stdout.count("\n") > len(found["releases"])


def test_simulate_is_the_simulator_and_has_json() -> None:
    load = ("simulate", "--poisson", "1", "--seconds", "5")
    assert "| default |" in run(*load).stdout
    assert "default" in answer(*load)
    assert run("simulate").exit_code == 2


# manifest


def test_a_manifest_taken_twice_is_the_same_and_has_a_version_and_a_hash_of_everything() -> None:
    first = inventory.take()
    assert inventory.drift(first, inventory.take()) == []
    assert set(first["packages"]) == {*inventory.OURS, *inventory.FOREIGN}
    present = {name: each for name, each in first["packages"].items() if each is not None}
    assert {"vllm-tt-plugin", "tt-worker", "torch"} <= present.keys()
    assert all(each["version"] and len(each["sha256"]) == 64 for each in present.values())
    assert str(Path.cwd()) not in json.dumps(first)


def test_manifest_check_passes_here_and_names_what_has_drifted(tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    assert run("manifest", "--write", str(file)).exit_code == 0
    assert run("manifest", "--check", str(file)).exit_code == 0
    changed = json.loads(file.read_text())
    changed["packages"]["torch"]["version"] = "1.0"
    changed["packages"]["numpy"] = None
    file.write_text(json.dumps(changed))
    done = run("manifest", "--check", str(file))
    assert done.exit_code == 1
    assert "packages.torch.version: 1.0 -> " in done.stdout
    assert "packages.numpy: absent -> " in done.stdout
    assert answer("manifest", "--check", str(file))["ok"] is False


def test_a_changed_source_file_changes_the_hash(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    before = inventory.hash_of_folder(tmp_path)
    (tmp_path / "a.py").write_text("a = 2\n")
    assert inventory.hash_of_folder(tmp_path) != before
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").touch()
    (tmp_path / "a.py").write_text("a = 1\n")
    assert inventory.hash_of_folder(tmp_path) == before


@pytest.mark.parametrize("text", ["no json", "[]", '{"format": 7}'])
def test_a_file_that_is_no_manifest_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.write_text(text)
    done = run("manifest", "--check", str(file))
    assert done.exit_code == 2
    assert "vllm-tt manifest --write" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_manifest_is_one_line(tmp_path: Path) -> None:
    assert "cannot be read" in run("manifest", "--check", str(tmp_path / "none.json")).stderr


# install-vllm

TARGET = install_vllm.Target("python", "uv", (3, 12), "site", "2.13.0", None, "1.26.4", "0.81.1", False)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installing.installer, "inspect", lambda python, uv: TARGET)
    monkeypatch.setattr(installing.installer, "find_uv", lambda python: "uv")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("target")
def test_a_dry_run_says_what_is_kept_left_out_and_run() -> None:
    done = run("install-vllm", "--version", "0.31.0", "--dry-run")
    assert done.exit_code == 0
    assert "would install vLLM 0.31.0 (empty target)" in done.stdout
    assert "kept: torch==2.13.0\nkept: numpy==1.26.4" in done.stdout
    assert "left out: opencv-python-headless: it needs numpy 2, which ttnn rules out" in done.stdout
    assert "VLLM_TARGET_DEVICE=empty" in done.stdout


@pytest.mark.usefixtures("target")
def test_a_dry_run_in_json_has_the_commands() -> None:
    found = answer("install-vllm", "--dry-run")
    assert found["vllm"] == compat.load().default.vllm
    assert not found["installed"]
    assert found["commands"][-1].startswith("uv pip install")


@pytest.mark.usefixtures("target")
def test_an_unknown_release_names_the_rows() -> None:
    done = run("install-vllm", "--version", "0.1.0", "--dry-run")
    assert done.exit_code == 2
    assert "vLLM 0.1.0 is not in the compat matrix: allowed 0.33.0" in done.stderr
