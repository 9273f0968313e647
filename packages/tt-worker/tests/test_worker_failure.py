"""A step that fails is reported once, with its cause and its requests; a device that hangs becomes an error."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import VOCABULARY, Argmax, LedgerModel

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.failure import StepFailed, StepGuard, StepTimeout, TimeLimit
from tt_worker.inflight import InFlight
from tt_worker.pages import PageTable, PageTables
from tt_worker.reload import ReloadPlanner
from tt_worker.rows import RowTable
from tt_worker.runner import Runner, RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest
from tt_worker.steplog import StepLog


class BreakingModel(LedgerModel):
    """Works until told what to do instead of the next decode step's read-back."""

    def __init__(self, fault: Any) -> None:
        super().__init__(4, 16, contract=1)
        self.fault = fault

    def process_decode_output_host(self, *args: Any, **keywords: Any) -> Any:
        self.fault()
        return super().process_decode_output_host(*args, **keywords)


def running(fault: Any, limit: TimeLimit | None = None) -> Runner:
    """A runner with two requests that are ready to decode."""
    model = BreakingModel(fault)
    adapter = ModelAdapter(
        model, rows=4, vocab_size=VOCABULARY, trace=TraceMode.of("all"), event_synchronize=lambda event: None
    )
    runner = Runner(
        RunnerConfig(alignment=4),
        adapter,
        RowTable(4),
        PageTables([PageTable(4, 8, 16)]),
        RowSamplers(4, VOCABULARY, DeviceSampler(mode=Mode.ALL), Argmax()),
        ReloadPlanner(resident_inputs=True),
        StepLog(),
        limit,
    )
    greedy = RowSampling(temperature=0)
    admissions = [Admission(name, [1, 2], [], 0, [[block]], greedy) for name, block in (("a", 1), ("b", 2))]
    runner.execute(StepRequest(admissions=admissions, scheduled={"a": 2, "b": 2}))
    runner.sample()
    return runner


def decode(runner: Runner) -> InFlight[Any]:
    runner.execute(StepRequest(scheduled={"a": 1, "b": 1}))
    flight = runner.sample()
    assert isinstance(flight, InFlight)
    return flight


def broken() -> None:
    raise OSError("core 3,7 does not answer")


def test_a_step_that_fails_names_its_requests_and_its_cause() -> None:
    runner = running(broken)
    with pytest.raises(StepFailed, match="The step of a, b failed: OSError: core 3,7 does not answer") as caught:
        decode(runner).result()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.request_ids == ("a", "b")
    assert runner.failure is caught.value


def test_nothing_is_computed_after_a_failure_and_everyone_gets_the_first_one() -> None:
    """Fails when a later step is run, or when it puts its own error in place of the first (#26)."""
    faults = iter([OSError("first"), OSError("second")])

    def fault() -> None:
        raise next(faults)

    runner = running(fault)
    flights = [decode(runner), decode(runner)]
    for flight in flights:
        with pytest.raises(StepFailed, match="first"):
            flight.result()
    with pytest.raises(StepFailed, match="first"):
        runner.execute(StepRequest(scheduled={"a": 1}))
    assert isinstance(next(faults), OSError)
    runner.close()


def test_a_device_that_hangs_becomes_an_error_that_names_the_option() -> None:
    forever = threading.Event()
    runner = running(forever.wait, TimeLimit(0.2))
    flight = decode(runner)
    begun = time.monotonic()
    with pytest.raises(StepFailed, match=r"a decode step did not end within .*step_time_limit_s=0.2") as caught:
        flight.result()
    assert time.monotonic() - begun < 5
    assert isinstance(caught.value.__cause__, StepTimeout)
    runner.close()
    forever.set()


def test_within_the_limit_nothing_changes() -> None:
    plain = decode(running(lambda: None)).result()
    limited = decode(running(lambda: None, TimeLimit(30))).result()
    assert plain == limited


def test_a_limited_call_passes_its_result_and_its_error_on_and_a_call_that_hangs_does_not_block_the_next() -> None:
    limit = TimeLimit(0.2)
    forever = threading.Event()
    assert limit.call("x", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        limit.call("x", lambda: 1 // 0)
    with pytest.raises(StepTimeout):
        limit.call("x", forever.wait)
    assert limit.call("x", lambda: 4) == 4
    forever.set()


def test_two_threads_wait_for_the_device_at_the_same_time() -> None:
    """One reads a step while the other submits the next. Fails when all callers share one thread."""
    limit = TimeLimit(20)
    met = threading.Barrier(2, timeout=10)
    other = threading.Thread(target=lambda: limit.call("x", met.wait))
    other.start()
    limit.call("x", met.wait)
    other.join()


def test_without_a_limit_the_caller_s_own_thread_calls_the_device() -> None:
    assert TimeLimit(None).call("x", threading.get_ident) == threading.get_ident()


def test_of_two_failures_at_once_one_is_kept() -> None:
    guard = StepGuard()
    met = threading.Barrier(2, timeout=10)
    caught: list[StepFailed] = []

    def fail(name: str) -> None:
        def work() -> None:
            met.wait()
            raise OSError(name)

        try:
            guard.run([name], work)
        except StepFailed as failure:
            caught.append(failure)

    threads = [threading.Thread(target=fail, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught[0] is caught[1] is guard.failure


def test_a_long_list_of_requests_is_cut_in_the_text_only() -> None:
    failure = StepFailed([f"r{i}" for i in range(20)], OSError("x"))
    assert "r7 and 12 more failed" in str(failure)
    assert len(failure.request_ids) == 20
