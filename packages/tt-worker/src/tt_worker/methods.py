"""The methods of a model class as they are, not as they should be: which keywords each one takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


class AdapterError(RuntimeError):
    """A model class does not keep tt-metal's contract. The text names the class, the method and the clause."""


class Method:
    """One method of a model object with the keywords it accepts, read from its signature once."""

    def __init__(self, owner: object, name: str, clause: str) -> None:
        self.label = f"{_class_name(owner)}.{name}"
        self.clause = clause
        function = getattr(owner, name, None)
        if not callable(function):
            raise AdapterError(f"{self.label} is missing: tt-metal contract {clause} requires it")
        self.function: Callable[..., Any] = function
        parameters = inspect.signature(function).parameters.values()
        self._open = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def takes(self, keyword: str) -> bool:
        return self._open or keyword in self._names

    def names(self, keyword: str) -> bool:
        """Whether the signature spells the keyword out; a `**kwargs` alone is no promise that it is understood."""
        return keyword in self._names

    def __call__(self, required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Any:
        """Call with every required keyword and with those optional ones that the method takes."""
        if not self._open and not self._names.issuperset(required):
            refused = ", ".join(name for name in required if name not in self._names)
            raise AdapterError(f"{self.label} does not take {refused}: tt-metal contract {self.clause}")
        if optional is None:
            return self.function(**required)
        extra = {name: value for name, value in optional.items() if self.takes(name)}
        return self.function(**required, **extra)


def optional_method(owner: object, name: str, clause: str) -> Method | None:
    """The method if the object has it, else None."""
    return Method(owner, name, clause) if callable(getattr(owner, name, None)) else None


def _class_name(owner: object) -> str:
    return owner.__name__ if isinstance(owner, type) else type(owner).__name__
