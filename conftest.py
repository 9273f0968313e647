"""Hypothesis without deadlines: on a busy machine the first example pays for imports."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("workspace", deadline=None)
    settings.load_profile("workspace")
