"""What keeps a process's memory with a virtual machine while it is measured."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

numpy = pytest.importorskip("numpy")
if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)

import resident  # noqa: E402


def test_the_pages_of_a_process_are_those_that_it_has_written() -> None:
    """Fails when a mapping is counted by its size: most of a large one is not in memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    with mmap.mmap(-1, 64 * page) as fresh:  # the heap might give memory that was used before
        memory = numpy.frombuffer(fresh, dtype=numpy.uint8)
        memory[32 * page] = 1
        first = memory.ctypes.data // page
        mine = [address // page - first for address in resident.pages_of(os.getpid()).tolist()]
        del memory
    assert 32 in mine
    assert 16 not in mine, "never touched"


def test_a_family_is_a_process_with_its_children_and_theirs() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAIT!r}], stdin=sys.stdin)"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        assert {os.getppid(), grandchild} & set(resident.family(parent.pid)) == {grandchild}
        resident.touch(grandchild, resident.pages_of(grandchild))
        parent.communicate(b"end")
    assert not len(resident.pages_of(grandchild)), "it has ended"


WAIT = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


def test_the_keeper_ends_with_its_context() -> None:
    with resident.resident():
        keepers = [pid for pid in children() if b"resident.py" in command(pid)]
        assert len(keepers) == 1
    assert not any(b"resident.py" in command(pid) for pid in children())


def children() -> list[int]:
    return [pid for pid in resident.family(os.getpid()) if pid != os.getpid()]


def command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
