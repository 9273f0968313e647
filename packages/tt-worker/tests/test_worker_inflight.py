"""The in-flight queue: every step finishes once, in order, whoever asks."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_worker.inflight import InFlight, InFlightQueue


@given(st.lists(st.sampled_from(["submit", "ask", "ask_last", "drain"]), max_size=40), st.integers(1, 4))
def test_steps_finish_exactly_once_and_in_order(actions: list[str], depth: int) -> None:
    """Fails when `result` runs its own step before earlier ones, or a drained step twice."""
    queue: InFlightQueue[int] = InFlightQueue(depth)
    finished: list[int] = []
    flights: list[InFlight[int]] = []

    def finish(number: int) -> int:
        finished.append(number)
        return number * 10

    for action in actions:
        if action == "submit":
            number = len(flights)
            flights.append(queue.submit(lambda n=number: finish(n)))
        elif action == "drain":
            queue.drain()
            assert len(queue) == 0
        elif flights:
            number = 0 if action == "ask" else len(flights) - 1
            assert flights[number].result() == number * 10
        assert finished == list(range(len(finished)))
        assert len(queue) <= depth
    queue.drain()
    assert finished == list(range(len(flights)))


def test_two_threads_that_race_for_a_result_finish_it_once() -> None:
    """An output thread and the engine's loop both ask. Fails without the lock."""
    for _ in range(50):
        runs: list[int] = []

        def slow(runs: list[int] = runs) -> int:
            runs.append(1)
            time.sleep(0.0005)
            return 7

        queue: InFlightQueue[int] = InFlightQueue(2)
        flight = queue.submit(slow)
        answers: list[int] = []
        threads = [threading.Thread(target=lambda f=flight, a=answers: a.append(f.result())) for _ in range(3)]
        threads.append(threading.Thread(target=queue.drain))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert runs == [1]
        assert answers == [7, 7, 7]


def test_a_drain_raises_the_first_error_and_the_step_keeps_it() -> None:
    """The cause must not be lost to what is built on the failed step next (#26), nor blamed on another step."""
    queue: InFlightQueue[int] = InFlightQueue(2)
    bad = queue.submit(lambda: 1 // 0)
    good = queue.submit(lambda: 5)
    with pytest.raises(ZeroDivisionError):
        queue.drain()
    assert good.result() == 5
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            bad.result()
    queue.drain()
