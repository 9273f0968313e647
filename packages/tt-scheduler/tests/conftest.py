"""Makes the scripted engine available to the tests of this folder that need vLLM."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HARNESS = Path(__file__).with_name("scripted_engine.py")


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module scripted_engine.py. Skips where vLLM is absent."""
    pytest.importorskip("vllm")
    spec = importlib.util.spec_from_file_location("tt_scheduler_scripted_engine", HARNESS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
