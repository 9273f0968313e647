"""Steps that were submitted to the device and not read back yet."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class InFlight(Generic[R]):
    """One submitted step. `result()` reads it back and applies it, exactly once, whoever asks first.

    Steps finish in the order of their submission: asking for a later one finishes the earlier ones first.
    """

    def __init__(self, queue: InFlightQueue[R], finish: Callable[[], R]) -> None:
        self._queue = queue
        self._finish: Callable[[], R] | None = finish
        self._value: R | None = None
        self.error: BaseException | None = None
        self.done = False

    def result(self) -> R:
        """The step's result; raises what its read-back raised, every time it is asked."""
        self._queue.finish_through(self)
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def finish(self) -> None:
        """Read the step back and keep its value or its error. The queue calls this, in order and under its lock."""
        finish, self._finish = self._finish, None
        if finish is None:
            return
        try:
            self._value = finish()
        except BaseException as error:
            self.error = error
        finally:
            self.done = True


class InFlightQueue(Generic[R]):
    """First in, first out. Two threads may race for a result (the engine's loop and an output thread): one lock."""

    def __init__(self, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"an in-flight queue holds at least one step, not {depth}")
        self.depth = depth
        self._steps: deque[InFlight[R]] = deque()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._steps)

    def submit(self, finish: Callable[[], R]) -> InFlight[R]:
        """Add a step whose read-back is `finish`. When the queue is full the oldest step is finished first."""
        step = InFlight(self, finish)
        with self._lock:
            while len(self._steps) >= self.depth:
                self._steps.popleft().finish()
            self._steps.append(step)
        return step

    def drain(self) -> None:
        """Read back and apply everything. Raises the first error met, so that nothing is built on a step that
        failed."""
        first: BaseException | None = None
        with self._lock:
            while self._steps:
                step = self._steps.popleft()
                step.finish()
                first = first or step.error
        if first is not None:
            raise first

    def finish_through(self, step: InFlight[R]) -> None:
        with self._lock:
            while not step.done and self._steps:
                self._steps.popleft().finish()
