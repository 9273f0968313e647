"""Keeps the memory of a process and its children with a virtual machine whose host takes back what nobody touches.

    python tools/resident.py PID

Some hosts reclaim a guest's idle pages within seconds, behind the guest's back: the next step after a pause then spends
a tenth of a second in faults that no counter of the guest shows. That is the host's doing, not the engine's, so whoever
measures pauses reads one byte of each page from outside, several times a second. Linux.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERIOD_S = 0.5
REFRESH_S = 5.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_AT_ONCE = 1024  # IOV_MAX
_PRESENT = np.uint64(1 << 63)
_READ = ctypes.CDLL(None, use_errno=True).process_vm_readv


@contextmanager
def resident(pid: int | None = None) -> Generator[None]:
    """The same from another process, as long as the context lasts. pid: this process by default."""
    command = [sys.executable, __file__, str(pid or os.getpid())]
    keeper = subprocess.Popen(command, stdout=subprocess.PIPE)
    if keeper.stdout is None or not keeper.stdout.readline():
        raise RuntimeError(f"{' '.join(command)} ended with {keeper.wait()}")
    try:
        yield
    finally:
        keeper.kill()
        keeper.wait()


def family(root: int) -> list[int]:
    """The process and its descendants, this one left out."""
    parent_of: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parent_of[int(stat.parent.name)] = int(fields[1])
    members = [root]
    for member in members:
        members += [child for child, parent in parent_of.items() if parent == member and child != os.getpid()]
    return members


def pages_of(pid: int) -> NDArray[np.uint64]:
    """Addresses of the pages that the process has in memory; none of one that has ended."""
    try:
        return _pages(Path(f"/proc/{pid}"))
    except (FileNotFoundError, ProcessLookupError):
        return np.empty(0, dtype=np.uint64)


def _pages(process: Path) -> NDArray[np.uint64]:
    found = [np.empty(0, dtype=np.uint64)]
    with (process / "pagemap").open("rb", buffering=0) as pagemap:
        for line in (process / "maps").read_text().splitlines():
            span, mode = line.split()[:2]
            begin, end = (int(address, 16) for address in span.split("-"))
            if not mode.startswith("r") or begin >= 1 << 63:
                continue
            pagemap.seek(begin // _PAGE * 8)
            entries = np.frombuffer(pagemap.read((end - begin) // _PAGE * 8), dtype=np.uint64)
            found.append(np.uint64(begin) + np.flatnonzero(entries & _PRESENT).astype(np.uint64) * np.uint64(_PAGE))
    return np.concatenate(found)


def touch(pid: int, pages: NDArray[np.uint64]) -> None:
    """Read the first byte of each page, as long as the process is there.

    Raises:
        PermissionError: this user may not read it.
    """
    remote = np.ones((len(pages), 2), dtype=np.uint64)  # struct iovec: address, length
    remote[:, 0] = pages
    buffer = ctypes.create_string_buffer(_AT_ONCE)
    for first in range(0, len(pages), _AT_ONCE):
        part = remote[first : first + _AT_ONCE]
        local = np.array([ctypes.addressof(buffer), len(part)], dtype=np.uint64)
        count = _READ(pid, _pointer(local), 1, _pointer(part), ctypes.c_ulong(len(part)), 0)
        if count == -1 and ctypes.get_errno() == errno.EPERM:
            raise PermissionError(f"process {pid} may not be read: a kernel.yama.ptrace_scope of 0 allows it")
        if count == -1 and not _alive(pid):
            return


def keep(root: int) -> None:
    """Until the process ends."""
    known: dict[int, tuple[float, NDArray[np.uint64]]] = {}
    _sweep(root, known)
    print("every page was touched once", flush=True)
    while _alive(root):
        begin = time.monotonic()
        _sweep(root, known)
        time.sleep(max(0.0, PERIOD_S - (time.monotonic() - begin)))


def _sweep(root: int, known: dict[int, tuple[float, NDArray[np.uint64]]]) -> None:
    """Touch everything once. known: by process, when its pages were looked up, and which they are."""
    now = time.monotonic()
    for pid in family(root):
        if pid not in known or now - known[pid][0] > REFRESH_S:
            known[pid] = (now, pages_of(pid))
        touch(pid, known[pid][1])


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


if __name__ == "__main__":
    keep(int(sys.argv[1]))
