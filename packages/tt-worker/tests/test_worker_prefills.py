"""Prefills run beside the engine's thread, one at a time, and what they raise waits."""

from __future__ import annotations

import threading

import pytest

from tt_worker.prefills import Prefills


def test_a_prefill_does_not_hold_the_caller_and_the_next_waits_for_it() -> None:
    """Fails when `submit` runs the call itself, or when two calls run at once."""
    prefills, gate, order = Prefills(), threading.Event(), list[str]()

    def first() -> str:
        gate.wait(5)
        order.append("first")
        return "tokens"

    one = prefills.submit(first)
    two = prefills.submit(lambda: order.append("second"))
    assert order == []
    gate.set()
    prefills.wait()
    assert order == ["first", "second"]
    assert (one(), two()) == ("tokens", None)
    prefills.close()


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    prefills = Prefills()
    failed = prefills.submit(lambda: 1 / 0)
    prefills.wait()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failed()
    prefills.close()


def test_another_call_of_the_model_never_runs_beside_a_prefill() -> None:
    """release_request of a request that ended while somebody else's prompt is computed."""
    prefills, gate, order = Prefills(), threading.Event(), list[str]()
    prefills.call(lambda: order.append("at once"))
    prefills.submit(lambda: (gate.wait(5), order.append("prefill")))
    prefills.call(lambda: order.append("release"))
    assert order == ["at once"]
    gate.set()
    prefills.wait()
    assert order == ["at once", "prefill", "release"]
    prefills.close()


def test_the_thread_is_entered_once() -> None:
    """tt-metal's models must not record gradients: the grad mode of torch belongs to a thread."""
    entered: list[str] = []
    prefills = Prefills(lambda: entered.append(threading.current_thread().name))
    for _ in range(3):
        prefills.submit(lambda: None)()
    prefills.close()
    assert len(entered) == 1
    assert entered[0] != threading.current_thread().name
