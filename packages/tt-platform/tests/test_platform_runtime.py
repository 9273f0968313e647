"""The choice of a runtime, and imports of the core."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_platform.runtime import (
    Runtime,
    RuntimeChoice,
    RuntimeChoiceError,
    RuntimeUnavailable,
    TtnnRuntime,
    load_runtime,
)


@pytest.mark.parametrize(
    ("environ", "choice"),
    [
        ({}, RuntimeChoice.AUTO),
        ({"TT_RUNTIME": ""}, RuntimeChoice.AUTO),
        ({"TT_RUNTIME": "auto"}, RuntimeChoice.AUTO),
        ({"TT_RUNTIME": "ttnn"}, RuntimeChoice.TTNN),
        ({"TT_RUNTIME": " host "}, RuntimeChoice.HOST),
    ],
)
def test_the_variable_chooses_the_runtime(environ, choice):
    assert RuntimeChoice.from_environ(environ) is choice


@pytest.mark.parametrize("value", ["Host", "cpu", "ttnn,host", "1"])
def test_a_wrong_runtime_names_the_three(value):
    with pytest.raises(RuntimeChoiceError, match=f"TT_RUNTIME='{value}' is not a runtime: allowed auto, ttnn, host"):
        RuntimeChoice.from_environ({"TT_RUNTIME": value})


@given(st.text())
def test_reading_the_choice_is_total(value):
    try:
        choice = RuntimeChoice.from_environ({"TT_RUNTIME": value})
    except RuntimeChoiceError:
        return
    assert value.strip() in ("", choice.value)


def test_a_missing_ttnn_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ttnn", None)  # Python's own mark for "refuse to import"
    with pytest.raises(RuntimeUnavailable, match=r"ttnn cannot be imported: .*TT_RUNTIME=host"):
        TtnnRuntime()
    with pytest.raises(RuntimeUnavailable):
        load_runtime(RuntimeChoice.AUTO)


def test_a_missing_software_mesh_says_what_to_install(monkeypatch):
    monkeypatch.setattr("tt_platform.runtime.entry_points", lambda **_: [])
    with pytest.raises(RuntimeUnavailable, match=r"pip install 'vllm-tt-plugin\[host\]'"):
        load_runtime(RuntimeChoice.HOST)


def test_the_software_mesh_is_a_runtime():
    pytest.importorskip("tt_hostmesh")
    host = load_runtime(RuntimeChoice.HOST)
    assert isinstance(host, Runtime)
    assert host.name == "host"


def test_the_recorded_runtime_of_these_tests_is_one_too(runtime):
    assert isinstance(runtime, Runtime)


BLOCKED = """
import sys
for name in ("vllm", "torch", "ttnn", "numpy"):
    sys.modules[name] = None
import pkgutil, importlib, tt_platform
for module in pkgutil.walk_packages(tt_platform.__path__, "tt_platform."):
    if not module.name.startswith("tt_platform.vllm") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from tt_platform.vllm import activate
print(activate.platform_plugin())
"""


def test_the_core_imports_without_vllm_torch_and_ttnn():
    """Fails when a core module imports one of them at its top. The entry points' module is held to the same."""
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "None", "")
