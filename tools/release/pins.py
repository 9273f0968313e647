"""What the packages ask of each other: the meta-package the exact set, the others a range that holds it."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.requirements import Requirement

from release.wheel import Wheel
from release.workspace import META, normal

HELD = {"vllm", "torch", "ttnn", "numpy"}
"""What an environment owns: a resolver that was asked for them could replace them. numpy only by an exact version."""


def pin_problems(name: str, wheel: Wheel, versions: Mapping[str, str]) -> list[str]:
    """``versions``: the version of every built wheel."""
    found: list[str] = []
    for requirement in wheel.requirements:
        asked = normal(requirement.name)
        if asked in versions:
            found += _sibling(name, requirement, versions[asked])
        elif asked in HELD and requirement.marker is None and (asked != "numpy" or _exact(requirement)):
            found.append(f"asks for {requirement}: an environment's own {asked} could be replaced")
    if name == META:
        asked_for = {normal(requirement.name) for requirement in wheel.requirements}
        found += [f"does not pin {each}" for each in sorted(versions.keys() - asked_for - {META})]
    return found


def _sibling(name: str, requirement: Requirement, version: str) -> list[str]:
    if not requirement.specifier.contains(version, prereleases=True):
        return [f"asks for {requirement}, which the built {version} does not satisfy"]
    if name == META and not _exact(requirement):
        return [f"asks for {requirement}: the meta-package pins the exact version, =={version}"]
    if name != META and not any(each.operator in ("<", "<=", "~=", "==") for each in requirement.specifier):
        return [f"asks for {requirement}: a range without an upper end takes releases that nobody has tried"]
    return []


def _exact(requirement: Requirement) -> bool:
    return any(each.operator == "==" for each in requirement.specifier)
