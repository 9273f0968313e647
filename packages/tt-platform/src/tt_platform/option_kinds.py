"""The kinds of value an option can have. Each checks a JSON value and says in words what it allows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Protocol, cast


class OptionError(ValueError):
    """A launch option has a wrong type or value. The message names the option, the value, the allowed and the remedy.

    Attributes:
        option: full name, such as ``additional_config.tt.trace_mode``.
        value: what was given.
        allowed: what is accepted, in words.
    """

    def __init__(self, option: str, value: object, allowed: str, do: str = "") -> None:
        super().__init__(f"{option}={value!r} is not valid: allowed {allowed}" + (f"; {do}" if do else ""))
        self.option = option
        self.value = value
        self.allowed = allowed


class OptionKind(Protocol):
    """A check of one JSON value."""

    @property
    def allowed(self) -> str: ...

    def check(self, name: str, value: object) -> object:
        """Return the value to store, or raise :class:`OptionError`. None means the option is left unset."""
        ...


@dataclass(frozen=True, slots=True)
class Toggle:
    """true or false. 0, 1 and words are refused: a shell script that quotes "false" must not mean true."""

    @property
    def allowed(self) -> str:
        return "true or false"

    def check(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise OptionError(name, value, self.allowed)
        return value


class OneOf:
    """One of some words. None leaves the option unset when that is its default."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    @property
    def allowed(self) -> str:
        return ", ".join(self.choices)

    def check(self, name: str, value: object) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise OptionError(name, value, self.allowed)
        return value


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """An integer of at least ``least``. bool is not an integer; a float is refused even when it is whole."""

    least: int
    unit: str

    @property
    def allowed(self) -> str:
        return f"a whole number of {self.unit}, at least {self.least}"

    def check(self, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < self.least:
            raise OptionError(name, value, self.allowed)
        return value


@dataclass(frozen=True, slots=True)
class PositiveFloat:
    """A finite number above 0."""

    unit: str

    @property
    def allowed(self) -> str:
        return f"a number of {self.unit} above 0"

    def check(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise OptionError(name, value, self.allowed)
        number = _finite(value)
        if number is None or number <= 0:
            raise OptionError(name, value, self.allowed)
        return number


def _finite(value: int | float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Text:
    """A string that is not empty; with ``many``, also a list of them."""

    what: str
    many: bool = False

    @property
    def allowed(self) -> str:
        return self.what

    def check(self, name: str, value: object) -> object:
        given: object = value
        if isinstance(given, str) and given:
            return given
        if self.many and isinstance(given, (list, tuple)):
            names = tuple(cast("list[object]", given))
            if names and all(isinstance(item, str) and item for item in names):
                return names
        raise OptionError(name, value, self.allowed)


@dataclass(frozen=True, slots=True)
class Path:
    """A file-system path as a string. Whether it can be used is the user's of the option to say."""

    @property
    def allowed(self) -> str:
        return "a path"

    def check(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            raise OptionError(name, value, self.allowed)
        return value


@dataclass(frozen=True, slots=True)
class _Unset:
    """Accepts None besides what ``kind`` accepts: the JSON null of an option whose default is unset."""

    kind: OptionKind

    @property
    def allowed(self) -> str:
        return self.kind.allowed

    def check(self, name: str, value: object) -> object:
        return None if value is None else self.kind.check(name, value)


def option(kind: OptionKind, default: object, purpose: str) -> Any:
    """A dataclass field that carries its kind, default and one line for the docs."""
    checked = _Unset(kind) if default is None else kind
    return dataclasses.field(default=cast("Any", default), metadata={"kind": checked, "purpose": purpose})
