"""What a configuration rule can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """REJECT stops the launch, ADJUST changes facts, INFORM only says something."""

    REJECT = "reject"
    ADJUST = "adjust"
    INFORM = "inform"


class ConfigRejected(ValueError):
    """A launch cannot work on Tenstorrent. The text is one line for the operator; ``finding`` has its parts."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one rule.

    Attributes:
        kind: what happens.
        option: the flag, environment variable or key as the operator writes it.
        value: what it was.
        allowed: what it may be, in words; empty where that is not the point.
        do: what to do about it; empty where nothing is needed.
        message: the whole line that the operator reads.
        changes: for ADJUST, the fields of ConfigFacts that become other values.
        warn: logged as a warning, since it goes against something that an operator may have asked for.
    """

    kind: Kind
    option: str
    value: object
    allowed: str
    do: str
    message: str
    changes: Mapping[str, object] = field(default_factory=dict[str, object])
    warn: bool = False


def reject(option: str, value: object, *, allowed: str, do: str) -> Finding:
    """Refuse ``option value``. A flag and its value are written as on a command line."""
    given = option if value is True else f"{option} {value}" if option.startswith("--") else f"{option}={value}"
    message = f"{given} is not supported on Tenstorrent: allowed {allowed}; {do}"
    return Finding(Kind.REJECT, option, value, allowed, do, message)


def refuse(option: str, value: object, message: str) -> Finding:
    """Refuse with a ready line."""
    return Finding(Kind.REJECT, option, value, "", "", message)


def adjust(option: str, value: object, message: str, **changes: object) -> Finding:
    """Change what an operator may have asked for, with a warning."""
    return Finding(Kind.ADJUST, option, value, "", "", message, changes, warn=True)


def settle_default(option: str, value: object, message: str, **changes: object) -> Finding:
    """Fill in what the operator left open."""
    return Finding(Kind.ADJUST, option, value, "", "", message, changes)


def inform(option: str, value: object, message: str, *, warn: bool = False) -> Finding:
    """Say something that is worth a line in the log."""
    return Finding(Kind.INFORM, option, value, "", "", message, warn=warn)
