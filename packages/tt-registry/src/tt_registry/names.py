"""Names of architectures and of the classes that serve them."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "TT"
"""The platform puts this before every architecture of a checkpoint, so that vLLM's own class is never chosen."""


def bare_name(architecture: str) -> str:
    """The name as the checkpoint's config.json spells it: `TTLlamaForCausalLM` -> `LlamaForCausalLM`."""
    return architecture[len(PREFIX) :] if _is_prefixed(architecture) else architecture


def tt_name(architecture: str) -> str:
    """The name under which vLLM looks for it: `LlamaForCausalLM` -> `TTLlamaForCausalLM`."""
    return architecture if _is_prefixed(architecture) else PREFIX + architecture


def _is_prefixed(architecture: str) -> bool:
    return architecture.startswith(PREFIX) and len(architecture) > len(PREFIX)


@dataclass(frozen=True, slots=True)
class Target:
    """A class by name, written `module.path:ClassName`, the form that vLLM's registry imports lazily."""

    module: str
    class_name: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `module.path:ClassName`.

        Raises:
            TargetError: the text has another form.
        """
        module, colon, class_name = text.strip().partition(":")
        if not colon:
            raise TargetError(f"{text!r} has no ':' between module and class; write module.path:ClassName")
        if not all(part.isidentifier() for part in module.split(".")):
            raise TargetError(f"{module!r} in {text!r} is not a dotted module path; write module.path:ClassName")
        if not class_name.isidentifier():
            raise TargetError(f"{class_name!r} in {text!r} is not a class name; write module.path:ClassName")
        return cls(module, class_name)

    def __str__(self) -> str:
        return f"{self.module}:{self.class_name}"


class TargetError(ValueError):
    """A text that should name a class does not."""
