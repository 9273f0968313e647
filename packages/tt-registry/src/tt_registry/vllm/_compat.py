"""What differs between releases of vLLM. Each probe runs once, at import."""

from __future__ import annotations

from vllm.model_executor.models.registry import ModelRegistry


def registered_target(name: str) -> str | None:
    """`module:Class` under which vLLM has this architecture; None when it has none; "" when it cannot be said.

    vLLM keeps lazy entries with `module_name` and `class_name`, others with `model_cls`; the entry classes are private
    and may lose them.
    """
    entry = ModelRegistry.models.get(name)
    if entry is None:
        return None
    held: object = getattr(entry, "model_cls", None)
    if isinstance(held, type):
        return f"{held.__module__}:{held.__name__}" if held.__name__ == held.__qualname__ else ""
    module: object = getattr(entry, "module_name", None)
    class_name: object = getattr(entry, "class_name", None)
    return f"{module}:{class_name}" if isinstance(module, str) and isinstance(class_name, str) else ""
