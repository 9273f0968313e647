"""DeviceSession: opened once, closed once, in the right order, whatever happens."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tt_platform.lifecycle import DEFAULT_TRACE_REGION_SIZE, DeviceSession, SessionError
from tt_platform.mesh import MeshError
from tt_platform.option_kinds import OptionError
from tt_platform.options import TTOptions


def session(runtime, **kwargs) -> DeviceSession:
    kwargs.setdefault("environ", {"MESH_DEVICE": "T3K"})
    return DeviceSession(runtime, **kwargs)


def test_closing_releases_the_model_then_profiler_submeshes_mesh_and_fabric(runtime):
    opened = session(runtime)
    opened.open().create_submeshes((1, 4))
    opened.before_close(lambda: runtime.calls.append(("model released", None)))
    opened.close()
    assert runtime.order == [
        "fabric",
        "open",
        "model released",
        "profiler",
        "close submesh",
        "close submesh",
        "close mesh",
        "fabric",
    ]
    assert runtime.calls[0][1] == {"config": "FABRIC_1D"}
    assert runtime.calls[-1][1] == {"config": "DISABLED"}


def test_a_second_close_does_nothing(runtime):
    opened = session(runtime)
    opened.open()
    opened.close()
    before = list(runtime.calls)
    opened.close()
    assert runtime.calls == before


def test_a_session_opens_once(runtime):
    opened = session(runtime)
    opened.open()
    with pytest.raises(SessionError):
        opened.open()
    opened.close()
    with pytest.raises(SessionError):
        opened.open()
    with pytest.raises(SessionError):
        _ = opened.mesh
    with pytest.raises(SessionError):
        opened.before_close(lambda: None)


def test_closing_a_session_that_was_never_opened_touches_nothing(runtime):
    session(runtime).close()
    assert runtime.calls == []


def test_a_failed_open_undoes_the_fabric(make_runtime):
    runtime = make_runtime(failing=("open",))
    opened = session(runtime)
    with pytest.raises(RuntimeError, match="open failed"):
        opened.open()
    assert runtime.order == ["fabric", "open", "fabric"]
    opened.close()
    assert runtime.order == ["fabric", "open", "fabric"]


@pytest.mark.parametrize("failing", ["profiler", "close submesh", "close mesh"])
def test_a_step_that_fails_does_not_stop_the_later_ones(make_runtime, failing):
    runtime = make_runtime(failing=(failing,))
    opened = session(runtime)
    opened.open().create_submeshes((1, 4))
    with pytest.raises(RuntimeError, match=f"{failing} failed"):
        opened.close()
    assert runtime.order[2:] == ["profiler", "close submesh", "close submesh", "close mesh", "fabric"]


def test_a_model_that_cannot_be_released_does_not_keep_the_mesh_open(runtime):
    def release() -> None:
        raise KeyError("model")

    opened = session(runtime)
    opened.open()
    opened.before_close(release)
    with pytest.raises(KeyError):
        opened.close()
    assert runtime.order[-2:] == ["close mesh", "fabric"]


def test_a_with_block_closes_also_on_an_exception(runtime):
    with pytest.raises(ZeroDivisionError), session(runtime):
        _ = 1 / 0
    assert runtime.order[-2:] == ["close mesh", "fabric"]


def test_one_chip_has_no_fabric_even_when_asked_for(make_runtime):
    runtime = make_runtime(devices=1, cluster="N150")
    with session(runtime, options=TTOptions(fabric_config="FABRIC_1D"), environ={}):
        pass
    assert "fabric" not in runtime.order


def test_the_models_fabric_is_used_and_not_changed(runtime):
    model = {"config": "FABRIC_1D_RING", "num_planes": 2}
    with session(runtime, model_fabric=model, options=TTOptions(fabric_reliability_mode="RELAXED_INIT")):
        pass
    assert runtime.calls[0] == (
        "fabric",
        {"config": "FABRIC_1D_RING", "num_planes": 2, "reliability_mode": "RELAXED_INIT"},
    )
    assert model == {"config": "FABRIC_1D_RING", "num_planes": 2}


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, DEFAULT_TRACE_REGION_SIZE),
        ({"trace_mode": "decode_only"}, DEFAULT_TRACE_REGION_SIZE),
        ({"trace_region_size": 7}, 7),
        ({"trace_mode": "none", "trace_region_size": 7}, None),
    ],
)
def test_the_trace_region_is_kept_only_when_steps_are_traced(runtime, options, size):
    with session(runtime, options=TTOptions.parse(options)):
        pass
    assert dict(runtime.calls)["open"]["trace_region_size"] == size


def test_sizes_and_axis_reach_the_runtime(runtime):
    options = TTOptions.parse({"worker_l1_size": 1, "l1_small_size": 2, "dispatch_core_axis": "col"})
    with session(runtime, options=options):
        pass
    opened = dict(runtime.calls)["open"]
    assert (opened["worker_l1_size"], opened["l1_small_size"], opened["dispatch_core_axis"]) == (1, 2, "col")


def test_an_unknown_fabric_is_refused_before_anything_is_opened(runtime):
    with pytest.raises(OptionError, match=r"fabric_config='RING'.*FABRIC_1D_RING"):
        session(runtime, options=TTOptions(fabric_config="RING")).open()
    assert runtime.calls == []


def test_a_mesh_larger_than_the_machine_is_refused_before_anything_is_opened(runtime):
    with pytest.raises(MeshError, match="needs 32 chips"):
        session(runtime, environ={"MESH_DEVICE": "TG"}).open()
    assert runtime.calls == []


def test_a_given_grid_wins_over_the_environment(runtime):
    with session(runtime, grid=(1, 2)):
        pass
    assert dict(runtime.calls)["open"]["shape"] == (1, 2)


PROGRAM = """
import atexit, importlib.util, json, multiprocessing, os, sys, time
spec = importlib.util.spec_from_file_location("recorder", {conftest!r})
recorder = importlib.util.module_from_spec(spec); sys.modules["recorder"] = recorder; spec.loader.exec_module(recorder)
from tt_platform.lifecycle import DeviceSession
runtime = recorder.RecordingRuntime()
session = DeviceSession(runtime, environ={{}})

class Log(list):
    def append(self, call):
        super().append(call)
        with open({log!r}, "a") as log:
            log.write(json.dumps(call[0]) + "\\n")

runtime.calls = Log()

def serve():
    session.open()
    session.before_close(lambda: runtime.calls.append(("model", None)))

if __name__ == "__main__":
{body}
"""
ENDS = {
    "normal end": ("serve()", 0),
    "exception": ("serve(); raise RuntimeError('engine died')", 1),
    "exit code": ("serve(); sys.exit(3)", 3),
    "closed and then ended": ("serve(); session.close()", 0),
    "SIGTERM": ("serve(); os.kill(os.getpid(), 15); time.sleep(30)", 143),
    "child of multiprocessing": (
        "child = multiprocessing.get_context('fork').Process(target=serve); child.start(); child.join()",
        0,
    ),
    "fork of an open session": (
        "serve()\n"
        "child = multiprocessing.get_context('fork').Process(target=session.close); child.start(); child.join()",
        0,
    ),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_the_mesh_is_closed_once_at_the_end_of_the_process(tmp_path: Path, end: str):
    """Fails when the exit hooks are taken out, or when a forked child closes what its parent opened."""
    body, code = ENDS[end]
    log = tmp_path / "log"
    program = PROGRAM.format(
        conftest=str(Path(__file__).with_name("conftest.py")), log=str(log), body=textwrap.indent(body, "    ")
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert calls == ["fabric", "open", "model", "profiler", "close mesh", "fabric"]


def test_a_sigterm_handler_of_the_host_program_is_left_alone(runtime):
    def handler(number, frame):
        pass

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with session(runtime):
            assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_default_sigterm_action_comes_back_after_close(runtime):
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with session(runtime):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_start_that_fails_closes_the_mesh_and_keeps_its_error(make_runtime):
    """Also where closing fails on the way."""
    runtime = make_runtime(failing=("profiler",))
    opened = session(runtime)
    opened.open()
    with opened.start():
        assert opened.is_open
    with pytest.raises(OSError, match="no weights"), opened.start():
        raise OSError("no weights")
    opened.close()
    assert not opened.is_open
    assert runtime.order.count("close mesh") == 1


class Owner:
    """Whoever would have closed the session."""


def test_the_mesh_is_closed_with_whoever_would_have_closed_it(runtime):
    opened, owner = session(runtime), Owner()
    opened.open()
    opened.close_with(owner)
    assert opened.is_open
    del owner
    gc.collect()
    assert not opened.is_open
    opened.close()
    assert runtime.order.count("close mesh") == 1
    with pytest.raises(SessionError, match="name its owner"):
        opened.close_with(Owner())


def test_the_mesh_outlives_an_owner_that_another_thread_collects(runtime):
    """Closing may wait for that very thread."""
    opened, owners = session(runtime), [Owner()]
    opened.open()
    opened.close_with(owners[0])
    other = threading.Thread(target=owners.clear)
    other.start()
    other.join()
    assert opened.is_open
    opened.close()


def test_nothing_is_closed_by_the_garbage_collector(runtime):
    opened = session(runtime)
    opened.open()
    assert "__del__" not in dir(opened)
    opened.close()
    assert os.getpid() == opened._owner
