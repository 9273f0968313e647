"""What becomes of a step that fails, and of one that never ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_SHOWN = 8


class StepFailed(RuntimeError):
    """A step failed. The text names the requests that it hit and the first cause, which is `__cause__` too."""

    def __init__(self, request_ids: Sequence[str], cause: BaseException) -> None:
        shown = ", ".join(request_ids[:_SHOWN])
        more = f" and {len(request_ids) - _SHOWN} more" if len(request_ids) > _SHOWN else ""
        super().__init__(f"The step of {shown}{more} failed: {type(cause).__name__}: {cause}")
        self.request_ids = tuple(request_ids)


class StepGuard:
    """Keeps the first failure. Nothing is computed after it: what the device holds is not known any more.

    Threads may race (the engine's loop and an output thread); one failure is kept, and everyone gets that one.
    """

    def __init__(self) -> None:
        self.failure: StepFailed | None = None
        self._lock = threading.Lock()

    def run(self, request_ids: Sequence[str], work: Callable[[], T]) -> T:
        """The result of `work`, a part of one step.

        Raises:
            StepFailed: the first failure of this worker, now or earlier.
        """
        if self.failure is not None:
            raise self.failure
        try:
            return work()
        except StepFailed:
            raise
        except Exception as error:
            raise self._first(StepFailed(request_ids, error)) from error

    def _first(self, failure: StepFailed) -> StepFailed:
        with self._lock:
            self.failure = self.failure or failure
            return self.failure


class StepTimeout(RuntimeError):
    """The device did not answer within the limit."""


class TimeLimit:
    """Waits for blocking calls of the device library, but no longer than `seconds` each; None waits for ever.

    With a limit the call runs in a thread of its own, one for each calling thread, since nothing can interrupt it.
    A call that holds Python's lock while it hangs cannot be noticed.

    enter_thread: called first in each such thread
    """

    def __init__(self, seconds: float | None = None, enter_thread: Callable[[], Any] = lambda: None) -> None:
        self.seconds = seconds
        self.enter_thread = enter_thread
        self._local = threading.local()

    def call(self, what: str, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raises. what: words for the error.

        Raises:
            StepTimeout: it took too long. The thread stays behind with the call.
        """
        if self.seconds is None:
            return work()
        caller: _Caller | None = getattr(self._local, "caller", None)
        if caller is None:
            caller = self._local.caller = _Caller(self.enter_thread)
        answer = caller.submit(work)
        try:
            value, error = answer.get(timeout=self.seconds)
        except queue.Empty:
            self._local.caller = None
            raise StepTimeout(
                f"{what} did not end within additional_config.tt.step_time_limit_s={self.seconds:g}: it hangs, "
                "or a step needs longer; reset the cards, or raise the limit"
            ) from None
        if error is not None:
            raise error
        return value


class _Caller:
    """A thread that runs one call after another. It is a daemon: a call that hangs must not keep the process alive."""

    def __init__(self, enter: Callable[[], Any]) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(enter,), name="tt-device-call", daemon=True).start()

    def submit(self, work: Callable[[], Any]) -> queue.SimpleQueue[Any]:
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._work.put((work, answer))
        return answer

    def _run(self, enter: Callable[[], Any]) -> None:
        enter()
        while True:
            work, answer = self._work.get()
            try:
                answer.put((work(), None))
            except BaseException as error:
                answer.put((None, error))
            del work, answer
