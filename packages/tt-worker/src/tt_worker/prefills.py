"""Prefill calls that block until the device has answered, in a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")


class Prefills:
    """Runs one call after another, so that the engine can schedule the next step while the device works.

    A model is called by one thread at a time: whoever else wants to call it uses `call`, or waits with `wait` first.
    enter_thread: called first in the thread
    """

    def __init__(self, enter_thread: Callable[[], Any] = lambda: None) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tt-prefill", initializer=enter_thread)
        self._last: Future[Any] | None = None

    def submit(self, call: Callable[[], T]) -> Callable[[], T]:
        """Start `call` behind the ones before it. The answer waits for its result, and raises what it raised."""
        future = self._last = self._thread.submit(call)
        return future.result

    def call(self, work: Callable[[], object]) -> None:
        """Another call of the model: now, or behind a prefill that runs; then `work` keeps its own error."""
        if self._last is None or self._last.done():
            work()
        else:
            self.submit(work)

    def wait(self) -> None:
        """Until no call runs. What one raised is the business of whoever asks for its result."""
        if self._last is not None:
            wait([self._last])
            self._last = None

    def close(self) -> None:
        """End the thread after its last call."""
        self._thread.shutdown()
