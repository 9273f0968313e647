"""Release notes: a fragment a change in ``changes/``, gathered into CHANGELOG.md by towncrier."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from release.workspace import Package

MARKER = "<!-- towncrier release notes start -->"
KINDS = ("added", "changed", "fixed", "removed")
NAME = re.compile(rf"(\+[\w-]+|\d+)\.({'|'.join(KINDS)})(\.\d+)?\.md")
UNRELEASED = "## Unreleased"


def fragments(package: Package) -> list[Path]:
    """What is there for the next release, wrong names too."""
    return sorted(path for path in (package.folder / "changes").glob("*") if path.name != ".gitignore")


def note_problems(package: Package, tag: str | None, changed: list[str]) -> list[str]:
    """``tag``: the last release;  ``changed``: what the package ships that differs from it."""
    changelog = (package.folder / "CHANGELOG.md").read_text(encoding="utf-8")
    waiting = fragments(package)
    found = [
        f"changes/{path.name}: allowed is +what.KIND.md or ISSUE.KIND.md, KIND one of {', '.join(KINDS)}"
        for path in waiting
        if not NAME.fullmatch(path.name)
    ]
    found += [f"changes/{path.name} is empty" for path in waiting if not path.read_text(encoding="utf-8").strip()]
    if changelog.count(MARKER) != 1:
        found.append(f"CHANGELOG.md must have the line {MARKER} once: towncrier writes below it")
    if tag is None and not waiting and UNRELEASED not in changelog:
        found.append("nothing is written about the first release")
    if tag is not None and UNRELEASED in changelog:
        found.append(f"CHANGELOG.md still says {UNRELEASED[3:]} after {tag}: changes are fragments")
    if changed and not waiting:
        found.append(f"{len(changed)} files changed since {tag} and changes/ is empty: {', '.join(changed[:3])}")
    return found


def draft(package: Package) -> str:
    """The notes of the next release as towncrier writes them. Raises ValueError with what it says against them."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", package.version]
    command += ["--name", package.name, "--config", str(package.root / "pyproject.toml"), "--dir", str(package.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip() or done.stdout.strip())
    return done.stdout
