"""A rule: its check, its name and its line in the docs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding

Check = Callable[[ConfigFacts], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """Attributes:
    name: stable name, also the name of its test.
    docs: why the rule is there, one line of ``docs/rules.md``.
    check: the decision.
    """

    name: str
    docs: str
    check: Check


def rule(docs: str) -> Callable[[Check], Rule]:
    """Make a rule of a function; the rule is named after it."""

    def make(check: Check) -> Rule:
        return Rule(check.__name__, docs, check)

    return make
