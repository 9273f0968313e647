"""The probes of tt_scheduler.vllm._compat: right on this release, and each needed by some release of the matrix."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MATRIX = Path(__file__).resolve().parents[3] / "compat.toml"

# What a probe covers, and the releases that need it: from, and before (minor release of 0.x; None is no bound).
PROBES = {
    "skipped_waiting in _WAITING_QUEUES": (None, 31),
    "max_num_running_reqs in admission_limit": (None, 31),
    "kv_holding_waiting in _WAITING_QUEUES and count_admissible": (31, None),
    "max_num_active_reqs in admission_limit": (31, None),
    "max_num_active_seqs in divide_rows": (31, None),
}


@pytest.mark.skipif(not MATRIX.is_file(), reason="the matrix is not part of a package's archive")
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_is_needed_by_a_release_of_the_matrix(probe: str) -> None:
    minors = [int(minor) for minor in re.findall(r'^vllm = "0\.(\d+)', MATRIX.read_text(), re.MULTILINE)]
    start, end = PROBES[probe]
    needed = [m for m in minors if (start is None or m >= start) and (end is None or m < end)]
    assert needed, f"no release of compat.toml needs it: delete {probe}"


@pytest.fixture
def scheduler(scripted: ModuleType) -> Any:
    from tt_scheduler.vllm.scheduler import TTScheduler

    return scripted.make_scheduler(TTScheduler, scripted.make_config(max_num_seqs=2))


@pytest.mark.vllm
def test_this_release_can_pass_over_running_requests(scripted: ModuleType) -> None:
    from tt_scheduler.vllm import _compat

    assert _compat.CAN_DEFER_RUNNING


@pytest.mark.vllm
def test_the_attribute_that_ends_admission_exists(scheduler: Any) -> None:
    from tt_scheduler.vllm import _compat

    assert getattr(scheduler, _compat.admission_limit(scheduler)) == 2


@pytest.mark.vllm
def test_waiting_requests_are_counted_in_whatever_queue_they_are(scripted: ModuleType, scheduler: Any) -> None:
    from tt_scheduler.vllm import _compat

    scheduler.add_request(scripted.make_request("plain", [5] * 20, 3))
    scheduler.add_request(scripted.make_request("grammar", [5] * 20, 3, structured=True))
    assert _compat.count_admissible(scheduler) == 2
    scheduler.schedule(False)
    assert _compat.count_admissible(scheduler) == 1


@pytest.mark.vllm
def test_nobody_is_admissible_without_a_row(scripted: ModuleType, scheduler: Any) -> None:
    from tt_scheduler.vllm import _compat

    for index in range(3):
        scheduler.add_request(scripted.make_request(f"r{index}", [5] * 20, 3))
    assert _compat.count_admissible(scheduler) == 3
    scheduler.schedule(False)
    assert _compat.count_running(scheduler) == 2
    assert _compat.count_admissible(scheduler) == 0
