"""Facts about the machine, each with a reason; one that fails does not hide the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tt_platform.detect import Fact, Facts, detect, device_problem, probe_runtime

module = import_module("tt_platform.detect")  # the package has a function of the same name


@pytest.fixture
def host_environ() -> dict[str, str]:
    pytest.importorskip("tt_hostmesh")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TT_", "MESH_"))}
    return {**kept, "TT_RUNTIME": "host"}


def test_the_software_mesh_answers_everything(host_environ, tmp_path):
    facts = detect({**host_environ, "MESH_DEVICE": "T3K"}, root=tmp_path)
    assert facts.chips == Fact(8, "the host runtime")
    assert facts.cluster_type.value == "T3K"
    assert facts.mesh_device == Fact([1, 8], "MESH_DEVICE=T3K")
    assert facts.fabric == Fact("FABRIC_1D", "default of T3K")
    assert facts.runtime == Fact("host", "TT_RUNTIME is set")


def test_files_of_the_machine_are_read(host_environ, tmp_path: Path):
    (tmp_path / "dev/tenstorrent").mkdir(parents=True)
    (tmp_path / "dev/tenstorrent/0").touch()
    pages = tmp_path / "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    pages.parent.mkdir(parents=True)
    pages.write_text("4\n")
    facts = detect(host_environ, root=tmp_path)
    assert facts.driver.value == ["0"]
    assert facts.hugepages.value == 4
    pages.write_text("many")
    assert detect(host_environ, root=tmp_path).hugepages.value is None


def test_a_missing_driver_is_a_fact_with_a_reason(host_environ, tmp_path):
    facts = detect(host_environ, root=tmp_path)
    assert facts.driver.value is None
    assert "is the kernel driver loaded?" in facts.driver.reason
    assert facts.chips.value == 1


def test_wrong_variables_are_facts_too(host_environ, tmp_path):
    facts = detect({**host_environ, "TT_RUNTIME": "gpu", "MESH_DEVICE": "X", "TT_VISIBLE_DEVICES": "a"}, root=tmp_path)
    assert "auto, ttnn, host" in facts.runtime.reason
    assert "auto, ttnn, host" in facts.chips.reason
    assert "N150" in facts.mesh_device.reason
    assert "TT_VISIBLE_DEVICES" in facts.visible_devices.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("import os; os._exit(9)", "exit code 9"),
        ("raise SystemExit('the driver is busy')", "the driver is busy"),
        ("import time; time.sleep(60)", "did not answer in 1 s"),
    ],
)
def test_a_probe_that_dies_is_a_reason_not_an_exception(monkeypatch, answer, reason):
    """The child is this test's own program, so that it can end as a broken driver would."""
    real = subprocess.run
    monkeypatch.setattr(module.subprocess, "run", lambda command, **kw: real([sys.executable, "-c", answer], **kw))
    facts = probe_runtime(os.environ, timeout=1)
    assert set(facts) == {"ttnn", "chips", "pcie_devices", "architecture", "cluster_type", "system_mesh"}
    assert reason in facts["chips"].reason
    assert reason in (device_problem(os.environ, timeout=1) or "")


def test_one_failing_question_does_not_hide_the_others(monkeypatch, runtime):
    def fail() -> str:
        raise RuntimeError("TT_FATAL @ x.cpp:1: no\ninfo:\nNo board\nbacktrace:\n --- frame")

    monkeypatch.setattr(runtime, "get_arch_name", fail)
    monkeypatch.setattr(module, "load_runtime", lambda: runtime)
    facts = module.ask_runtime()
    assert facts["architecture"] == Fact(None, "TT_FATAL @ x.cpp:1: no No board")
    assert facts["chips"].value == 8


@pytest.mark.parametrize(("chips", "problem"), [(Fact(8, ""), None), (Fact(0, ""), "sees no Tenstorrent chip")])
def test_a_device_is_there_or_the_user_is_told(monkeypatch, chips, problem):
    monkeypatch.setattr(module, "probe_runtime", lambda environ, timeout: {"chips": chips})
    told = device_problem({})
    assert told == problem if problem is None else problem in (told or "")


def test_an_answer_that_is_missing_gives_its_reason(monkeypatch):
    monkeypatch.setattr(module, "probe_runtime", lambda environ, timeout: {"chips": Fact(None, "driver too old")})
    assert "cannot be counted: driver too old" in (device_problem({}) or "")


def test_the_command_prints_a_table_and_json(host_environ):
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "tt_platform", *arguments]
        return subprocess.run(command, env=host_environ, capture_output=True, text=True, check=True).stdout

    table = run()
    assert table.splitlines()[0].split() == ["fact", "value", "reason"]
    assert len(table.splitlines()) == 1 + len(Facts.__slots__)
    answers = json.loads(run("--json"))
    assert list(answers) == list(Facts.__slots__)
    assert answers["chips"] == {"value": 1, "reason": "the host runtime"}
