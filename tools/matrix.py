"""What the rows of the compat matrix answered when their tests were run: docs/compat-results.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import tally

FILE = Path(__file__).resolve().parents[1] / "docs" / "compat-results.json"


@dataclass(frozen=True, slots=True)
class Result:
    """One row's run. seconds: by the clock, with what it took to make the environment."""

    passed: int
    failed: int
    skipped: int
    seconds: int

    @property
    def green(self) -> bool:
        return self.passed > 0 and not self.failed

    def __str__(self) -> str:
        minutes, seconds = divmod(self.seconds, 60)
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped, {minutes} min {seconds:02} s"


def result_of(reports: Iterable[Path], seconds: float) -> Result:
    """From the JUnit files of a row's suites. A suite that wrote none counts as a failure."""
    total = tally.Counts()
    for report in reports:
        total += tally.read(report) if report.exists() else tally.Counts(failed=1)
    return Result(total.passed, total.failed, total.skipped, round(seconds))


def load(file: Path = FILE) -> dict[str, Result]:
    """Row -> its last run."""
    return {row: Result(**values) for row, values in json.loads(file.read_text()).items()} if file.exists() else {}


def save(results: Mapping[str, Result], rows: Iterable[str], file: Path = FILE) -> None:
    """In the order of `rows`; what is not among them is dropped."""
    kept = {row: asdict(results[row]) for row in rows if row in results}
    file.write_text(json.dumps(kept, indent=2) + "\n")
