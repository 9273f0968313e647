"""A point of the audit and its verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``verdict``: pass, fail, or unknown when there is no evidence. ``do``: what follows from anything but a pass."""

    point: str
    verdict: str
    evidence: tuple[str, ...]
    do: str = ""


def judged(point: str, wrong: list[str], evidence: list[str], do: str) -> Finding:
    """Fails when anything is wrong; what is wrong is evidence too, and comes first."""
    return Finding(point, "fail" if wrong else "pass", (*wrong, *evidence), do if wrong else "")
