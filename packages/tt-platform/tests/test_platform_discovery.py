"""The chips of data-parallel ranks: found in a child process, with four distinct bad ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tt_platform import discovery
from tt_platform.data_parallel import DataParallelError
from tt_platform.discovery import (
    DiscoveryExit,
    DiscoveryFailed,
    DiscoverySilent,
    DiscoveryTimeout,
    discover,
    split_mesh,
)


@pytest.fixture
def host_environ() -> dict[str, str]:
    pytest.importorskip("tt_hostmesh")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TT_", "MESH_"))}
    return {**kept, "TT_RUNTIME": "host", "MESH_DEVICE": "T3K"}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_mesh_splits_into_disjoint_groups(host_environ, ranks):
    groups = discover(ranks, host_environ)
    assert len(groups) == ranks
    assert {group.grid for group in groups} == {(1, 8 // ranks)}
    assert sorted(device for group in groups for device in group.devices) == list(range(8))


def test_a_wormhole_galaxy_is_opened_as_four_rows_and_reordered(host_environ):
    groups = discover(4, {**host_environ, "MESH_DEVICE": "TG", "TT_HOST_CLUSTER": "GALAXY"})
    assert [group.devices[0] for group in groups] == [0, 16, 24, 8]
    assert {group.grid for group in groups} == {(1, 8)}


def test_a_mesh_that_does_not_split_is_reported_by_the_child(host_environ):
    with pytest.raises(DiscoveryFailed, match="discovery failed: 8 chips do not divide by 3 ranks"):
        discover(3, host_environ)


def play(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """The child runs ``program`` instead."""
    real = subprocess.Popen
    monkeypatch.setattr(
        discovery.subprocess, "Popen", lambda command, **kw: real([sys.executable, "-c", program], **kw)
    )


def test_a_child_that_does_not_answer_is_ended(monkeypatch):
    play(monkeypatch, "import time; time.sleep(60)")
    start = time.monotonic()
    with pytest.raises(DiscoveryTimeout, match=r"timed out after 0\.5 s"):
        discover(2, os.environ, timeout=0.5)
    assert time.monotonic() - start < 10


def test_a_child_that_ignores_the_request_to_end_is_killed(monkeypatch):
    monkeypatch.setattr(discovery, "EXIT_SECONDS", 0.2)
    play(monkeypatch, "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)")
    with pytest.raises(DiscoveryTimeout):
        discover(2, os.environ, timeout=1)


def test_a_child_that_ends_without_an_answer_is_said_to(monkeypatch):
    play(monkeypatch, "pass")
    with pytest.raises(DiscoverySilent, match="ended before answering"):
        discover(2, os.environ)


def test_a_child_that_crashes_is_reported_with_its_exit_code_and_last_line(monkeypatch):
    play(monkeypatch, "import sys; print('firmware too old', file=sys.stderr); sys.exit(7)")
    with pytest.raises(DiscoveryExit, match="exit code 7: firmware too old"):
        discover(2, os.environ)


def test_a_child_that_says_it_failed_is_quoted(monkeypatch):
    play(monkeypatch, """print('{"error": "no mesh"}')""")
    with pytest.raises(DiscoveryFailed, match="discovery failed: no mesh"):
        discover(2, os.environ)


def test_groups_that_do_not_match_the_ranks_are_refused(monkeypatch):
    reply = '{"groups": [{"devices": [0], "grid": [1, 1]}], "cluster_type": "T3K", "parent": [1, 1]}'
    play(monkeypatch, f"print('{reply}')")
    with pytest.raises(DataParallelError, match="splits into 1 groups"):
        discover(2, os.environ)


def test_everything_that_was_opened_is_closed(runtime):
    answer = split_mesh(runtime, 2, {"MESH_DEVICE": "T3K"})
    assert runtime.order == ["open", "close submesh", "close submesh", "close mesh"]
    assert answer.parent == (1, 8)
    assert runtime.calls[0][1] == {"shape": (1, 8)}


def test_a_failure_while_splitting_closes_the_mesh(runtime):
    with pytest.raises(ValueError, match="do not divide"):
        split_mesh(runtime, 3, {})
    assert runtime.order == ["open", "close mesh"]
