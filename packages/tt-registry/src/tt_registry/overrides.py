"""`TT_MODEL_CLASS_OVERRIDES`: another class for an architecture, for one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .names import Target, TargetError, bare_name

VARIABLE = "TT_MODEL_CLASS_OVERRIDES"


@dataclass(frozen=True, slots=True)
class Override:
    """One entry. `architecture` is bare: the TT-prefixed spelling and the bare one mean the same."""

    architecture: str
    target: Target


class OverrideError(ValueError):
    """An entry of the variable cannot be read."""

    def __init__(self, entry: str, why: str) -> None:
        super().__init__(
            f"{VARIABLE}: entry {entry!r}: {why}; "
            "allowed: Architecture=module.path:ClassName, several separated by commas"
        )


def parse_overrides(text: str) -> tuple[Override, ...]:
    """Read `Arch=module:Class,Arch=module:Class`. Blank entries are skipped, so a trailing comma does no harm.

    Raises:
        OverrideError: an entry has another form, or an architecture is given two different classes.
    """
    found: dict[str, Override] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        override = _parse_entry(entry)
        earlier = found.setdefault(override.architecture, override)
        if earlier.target != override.target:
            raise OverrideError(entry, f"{override.architecture} is already set to {earlier.target}")
    return tuple(found.values())


def read_overrides(environ: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides of an environment. Raises OverrideError."""
    return parse_overrides(environ.get(VARIABLE, ""))


def _parse_entry(entry: str) -> Override:
    name, equals, target = (part.strip() for part in entry.partition("="))
    if not equals:
        raise OverrideError(entry, "there is no '='")
    if not name.isidentifier():
        raise OverrideError(entry, f"{name!r} is not an architecture name")
    try:
        return Override(bare_name(name), Target.parse(target))
    except TargetError as error:
        raise OverrideError(entry, str(error)) from None
