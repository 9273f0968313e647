"""What holds for every test of the workspace."""

from __future__ import annotations

import os
from importlib.util import find_spec

# vLLM chooses its platform once in a process, when it is first imported: here that is ours, on the software mesh.
os.environ.setdefault("TT_RUNTIME", "host")

if find_spec("hypothesis"):
    from hypothesis import settings

    # On a busy machine the first example pays for imports.
    settings.register_profile("workspace", deadline=None)
    settings.load_profile("workspace")
