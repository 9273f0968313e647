"""Whether a benchmark had the machine to itself. Linux."""

import os
import resource
import time
import timeit
from pathlib import Path

ALLOWED = 0.05
"""Share of one core that others may have had for figures that can be quoted."""


class Neighbours:
    """What other processes computed between the making of this object and `cores`."""

    def __init__(self) -> None:
        self._all, self._own, self._elapsed = _busy_seconds(), _own_seconds(), time.monotonic()

    def cores(self) -> float:
        """Cores that others kept busy, on average; of children, those that have ended count as own."""
        elapsed = time.monotonic() - self._elapsed
        others = (_busy_seconds() - self._all) - (_own_seconds() - self._own)
        return max(0.0, others / elapsed)

    def verdict(self) -> str:
        """A line for a report."""
        cores = self.cores()
        quotable = "" if cores <= ALLOWED else " **The machine was not quiet: these figures are not to be quoted.**"
        return (
            f"Meanwhile other processes used {cores:.2f} cores; an empty Python loop took {loop_ns():.0f} ns a turn, "
            f"which tells its speed.{quotable}"
        )


def loop_ns() -> float:
    """A turn of an empty loop, nanoseconds, the best of five."""
    turns = 1_000_000
    return min(timeit.repeat("pass", number=turns, repeat=5)) / turns * 1e9


def _busy_seconds() -> float:
    """Of all processes, and time that the hypervisor kept for itself, but for idling and waiting for disks."""
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
