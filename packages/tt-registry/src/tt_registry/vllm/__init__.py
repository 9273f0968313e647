"""The room that may import vLLM: puts the registry's answers into vLLM's own model registry."""

from .register import register_models

__all__ = ["register_models"]
