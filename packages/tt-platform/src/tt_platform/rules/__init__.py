"""The configuration rules, in order, as data.

Each rule is a function from :class:`ConfigFacts` to a :class:`Finding` or None. :func:`settle` runs them in order and
hands each the facts as the earlier ones left them. Rules are idempotent: settled facts settle to themselves, since
vLLM may run the hook twice, in two processes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import ConfigRejected, Finding, Kind
from tt_platform.rules import blocks, cache, environment, features, model, parallelism, sampling, scheduling, shutdown
from tt_platform.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *environment.RULES,
    *model.RULES,
    *blocks.RULES,
    *parallelism.RULES,
    *features.RULES,
    *sampling.RULES,
    *cache.RULES,
    *scheduling.RULES,
    *shutdown.RULES,
)


@dataclass(frozen=True, slots=True)
class Settled:
    """The facts after every adjustment, and what was found on the way, in order. None of them is a rejection."""

    facts: ConfigFacts
    findings: tuple[Finding, ...]

    @property
    def changes(self) -> dict[str, object]:
        """The fields of ConfigFacts that were adjusted, with their last value."""
        return {name: value for finding in self.findings for name, value in finding.changes.items()}


def settle(facts: ConfigFacts, rules: tuple[Rule, ...] = RULES) -> Settled:
    """Run ``rules`` in order.

    Raises:
        ConfigRejected: at the first rule that rejects.
    """
    findings: list[Finding] = []
    for rule in rules:
        finding = rule.check(facts)
        if finding is None:
            continue
        if finding.kind is Kind.REJECT:
            raise ConfigRejected(finding)
        findings.append(finding)
        facts = dataclasses.replace(facts, **finding.changes)
    return Settled(facts, tuple(findings))


__all__ = ["RULES", "Rule", "Settled", "settle"]
