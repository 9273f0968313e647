"""The room that may import vLLM: puts the registry's answers into vLLM's own model registry."""

from ._compat import registered_target
from .register import foreign_target, register_models

__all__ = ["foreign_target", "register_models", "registered_target"]
