"""Adds up what pytest wrote, suite by suite: ``python tools/tally.py FOLDER``. Exit code 1 when a test failed."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """Tests of one suite. ``failed`` holds the errors outside of a test body too; ``seconds``: wall-clock time."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.seconds + other.seconds,
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read(report: Path) -> Counts:
    """The counts of a JUnit file."""
    total = Counts()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Counts(tests - failed - skipped, failed, skipped, float(suite.get("time", 0)))
    return total


def main(folder: Path) -> int:
    suites = {report.stem: read(report) for report in sorted(folder.glob("*.xml"))}
    for name, counts in suites.items():
        print(f"{name:<24} {counts!s:<44} {counts.seconds:6.0f} s")
    total = sum(suites.values(), Counts())
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
