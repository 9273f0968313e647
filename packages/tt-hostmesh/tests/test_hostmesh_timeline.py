"""The command queue: order, real overlap, errors, and the end of its thread."""

import subprocess
import sys
import threading
import time

import pytest

from tt_hostmesh import HostMeshError, HostRuntime, Machine
from tt_hostmesh.timeline import CommandQueue, HostEvent


@pytest.fixture
def queue():
    queue = CommandQueue("test")
    yield queue
    queue.stop()


def submit(queue, command, label="command"):
    return queue.submit(command, HostEvent(queue, label))


def test_commands_run_one_by_one_in_the_order_of_submission(queue):
    seen = []
    for number in range(200):
        submit(queue, lambda n=number: seen.append(n))
    queue.finish()
    assert seen == list(range(200))
    assert queue.executed == 200


def test_submit_returns_before_the_command_has_run(queue):
    gate = threading.Event()
    event = submit(queue, gate.wait)
    assert not event.done()
    with pytest.raises(TimeoutError, match=r"'command' did not finish within 0\.01 s"):
        event.wait(0.01)
    gate.set()
    assert event.result() is True
    assert event.done()


def test_an_exception_waits_at_its_event_and_the_queue_goes_on(queue):
    failed = submit(queue, lambda: 1 / 0)
    fine = submit(queue, lambda: 7)
    assert fine.result() == 7
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed.wait()


def test_stop_runs_what_is_queued_and_ends_the_thread():
    queue = CommandQueue("test")
    event = submit(queue, lambda: time.sleep(0.02))
    queue.stop()
    assert event.done()
    assert not queue.alive
    queue.stop()
    with pytest.raises(HostMeshError, match="test is closed: 'late' cannot be queued"):
        submit(queue, int, "late")


def test_busy_time_is_the_time_inside_commands(queue):
    submit(queue, lambda: time.sleep(0.05))
    queue.finish()
    busy = queue.busy_seconds
    assert busy >= 0.05
    time.sleep(0.05)
    assert queue.busy_seconds == busy


def test_closing_a_mesh_ends_its_thread():
    runtime = HostRuntime(Machine({}))
    before = threading.active_count()
    mesh = runtime.open_mesh_device((1, 1))
    event = mesh.submit(lambda: time.sleep(0.02) or 3)
    assert threading.active_count() == before + 1
    runtime.close_mesh_device(mesh)
    assert threading.active_count() == before
    assert event.result() == 3


SCRIPT = """
import atexit
from tt_hostmesh import HostRuntime, open_mesh_count
runtime = HostRuntime()
mesh = runtime.open_mesh_device((1, 1))
mesh.submit(lambda: print("ran"))
{last}
"""


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("", "ran\n"),
        ("atexit.register(lambda: (runtime.close_mesh_device(mesh), print(open_mesh_count())))", "ran\n0\n"),
    ],
    ids=["never closed", "closed by an exit handler"],
)
def test_a_process_that_forgot_its_mesh_still_ends(last, said):
    """Fails by its time limit when the queue's thread holds up the exit of the interpreter."""
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(last=last)], capture_output=True, text=True, timeout=30)
    assert (run.returncode, run.stdout, run.stderr) == (0, said, "")
