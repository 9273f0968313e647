"""What holds for every test of the workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("setuptools"):
    # It refuses to be imported once the standard library's distutils is there, and torch imports it late.
    import setuptools  # noqa: F401

# vLLM chooses its platform once in a process, when it is first imported: here that is ours, on the software mesh.
os.environ.setdefault("TT_RUNTIME", "host")


@pytest.fixture(autouse=True)
def _no_trace_of_a_closed_device() -> Iterator[None]:
    """An engine that ended in this process is over for the tests behind it: the platform is no CPU again."""
    yield
    if presence := sys.modules.get("tt_platform.presence"):
        presence.GIVEN_BACK.clear()


if find_spec("hypothesis"):
    from hypothesis import settings

    # On a busy machine the first example pays for imports.
    settings.register_profile("workspace", deadline=None)
    settings.load_profile("workspace")
