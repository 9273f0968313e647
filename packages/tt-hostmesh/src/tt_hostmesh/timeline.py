"""A device's command queue: one thread that runs commands in order, and the events that mark them done.

The time that a command takes is that of its computation, or, on a queue of simulated time, what the command says: see
`CommandQueue.occupy`.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.spans import Span

logger = logging.getLogger("vllm.tt.hostmesh.timeline")

T = TypeVar("T")

_ORPHAN_CHECK_S = 0.5
_POLLED_S = 0.0004
"""The end of a wait, spent polling as ttnn does: a sleep ends some tenths of a millisecond late."""


class HostEvent(Generic[T]):
    """Marks one command of a queue. Carries what the command returned, or what it raised.

    `owner` is the object whose queue runs the command; an event means nothing to another mesh. `submitted`: when the
    command was queued; `due`: when the device is done with it, later than its computation in simulated time. Monotonic
    seconds.
    """

    __slots__ = ("_done", "_error", "_value", "due", "label", "owner", "submitted")

    def __init__(self, owner: object, label: str) -> None:
        self.owner = owner
        self.label = label
        self.submitted = self.due = 0.0
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done.is_set() and self.due <= time.monotonic()

    def wait(self, timeout: float | None = None) -> None:
        """Block until the command is done. Raises what the command raised; TimeoutError after `timeout` seconds."""
        limit = float("inf") if timeout is None else time.monotonic() + timeout
        ran = self._done.wait(timeout)
        _sleep_until(min(self.due, limit))
        if not ran or self.due > limit:
            raise TimeoutError(f"command {self.label!r} did not finish within {timeout} s")
        if self._error is not None:
            raise self._error

    def result(self, timeout: float | None = None) -> T:
        """Wait, then return what the command returned."""
        self.wait(timeout)
        return self._value  # type: ignore[return-value]

    def computed(self) -> T:
        """For a later command of the same queue: what the command returned, without waiting for simulated time."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _complete(self, value: T | None, error: BaseException | None, due: float) -> None:
        self._value, self._error, self.due = value, error, due
        self._done.set()


class CommandQueue:
    """Runs commands one after the other, in the order of submission, in a thread of its own.

    The thread is not a daemon, so a command is never cut off half-way; `stop` ends it. Should the process end without
    `stop`, the thread sees that the main thread is gone and ends by itself: the interpreter waits for it before it runs
    exit handlers, which are where a mesh may be closed.

    `simulated`: a command takes the time that it asks for with `occupy`, from when it was queued and the device was
    free, whatever its computation took. Nobody burns that time: who waits for the event sleeps until it is due.
    `spans`: what ran when, kept if `record` is set.
    """

    def __init__(self, name: str, *, record: bool = False) -> None:
        self.name = name
        self.busy_seconds = 0.0
        self.simulated = False
        self.spans: list[Span] | None = [] if record else None
        self._occupied = 0.0
        self._free_at = 0.0
        self.executed = 0
        self._commands: deque[tuple[Callable[[], object], HostEvent[object]]] = deque()
        self._wake = threading.Condition()
        self._running = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=False)
        self._thread.start()

    def submit(self, command: Callable[[], T], event: HostEvent[T]) -> HostEvent[T]:
        """Queue `command`; `event` completes when it has run. Raises HostMeshError once stopped."""
        with self._wake:
            if self._stopping:
                raise HostMeshError(f"{self.name} is closed: {event.label!r} cannot be queued")
            event.submitted = time.monotonic()
            self._commands.append((command, event))  # type: ignore[arg-type]
            self._wake.notify_all()
        return event

    def occupy(self, seconds: float) -> None:
        """Called by a running command: it takes `seconds` more of simulated time."""
        self._occupied += seconds

    def settle(self) -> None:
        """Block until everything queued is computed, though simulated time may lag behind."""
        with self._wake:
            self._wake.wait_for(lambda: not self._commands and not self._running)

    def finish(self) -> None:
        """Block until the queue is empty and idle. Errors stay with their events."""
        self.settle()
        _sleep_until(self._free_at)

    def stop(self) -> None:
        """Run what is queued, then end the thread. Safe to call again."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()
            _sleep_until(self._free_at)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._execute(*item)

    def _next(self) -> tuple[Callable[[], object], HostEvent[object]] | None:
        with self._wake:
            self._running = False
            self._wake.notify_all()
            while not self._commands:
                if self._stopping:
                    return None
                if not self._wake.wait(_ORPHAN_CHECK_S) and not threading.main_thread().is_alive():
                    logger.info("The process is ending: %s stops", self.name)
                    self._stopping = True
            self._running = True
            return self._commands.popleft()

    def _execute(self, command: Callable[[], object], event: HostEvent[object]) -> None:
        self._occupied = 0.0
        began = time.monotonic()
        value: object = None
        error: BaseException | None = None
        try:
            value = command()
        except BaseException as caught:  # whatever it is belongs to the waiter, the queue goes on
            logger.debug("Command %r failed: %s", event.label, caught)
            error = caught
        self._account(event, began)
        event._complete(value, error, self._free_at)  # pyright: ignore[reportPrivateUsage]

    def _account(self, event: HostEvent[object], began: float) -> None:
        """Enter the command that just ran into the timeline."""
        if self.simulated:
            start = max(self._free_at, event.submitted)
            end = start + self._occupied
        else:
            start, end = began, time.monotonic()
        self._free_at = end
        self.busy_seconds += end - start
        self.executed += 1
        if self.spans is not None:
            self.spans.append(Span(event.label, event.submitted, start, end))


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > _POLLED_S:
        time.sleep(left - _POLLED_S)
    while time.monotonic() < moment:
        time.sleep(0)
