"""Results that nothing on the way to the next step needs."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """A value worked out when it is first asked for, once, in whichever thread asks.

    lock: held meanwhile; works that share memory share one
    """

    def __init__(self, work: Callable[[], T], lock: AbstractContextManager[Any] | None = None) -> None:
        self._work: Callable[[], T] | None = work
        self._lock = lock or RLock()
        self._value: T | None = None

    @staticmethod
    def of(value: T) -> "Late[T]":
        """One that is there already."""
        return Late(lambda: value)

    def __call__(self) -> T:
        with self._lock:
            if self._work is not None:
                self._value = self._work()
                self._work = None
        return self._value  # type: ignore[return-value]
