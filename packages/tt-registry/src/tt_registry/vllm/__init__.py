"""The room that may import vLLM: puts the registry's answers into vLLM's own model registry."""

from ._compat import registered_target
from .register import register_models

__all__ = ["register_models", "registered_target"]
