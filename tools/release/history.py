"""What git knows of a package's releases: its tags, and its sources as they were."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

from release.workspace import Package


class GitError(RuntimeError):
    """git did not do what it was asked to; the text is its own."""


def last_tag(package: Package) -> str | None:
    """The newest ``NAME-vX.Y.Z`` on the way to HEAD, or None before the first release."""
    listed = _git(package.root, "tag", "--list", f"{package.name}-v*", "--merged", "HEAD").decode().split()
    numbered = {tag: match for tag in listed if (match := _TAG.fullmatch(tag)) and match["name"] == package.name}
    return max(numbered, key=lambda tag: [int(number) for number in numbered[tag]["version"].split(".")], default=None)


_TAG = re.compile(r"(?P<name>.+)-v(?P<version>\d+\.\d+\.\d+)")


def version_of(tag: str) -> str:
    return tag.rpartition("-v")[2]


def changed_files(package: Package, tag: str) -> list[str]:
    """What differs from the tag in what the package ships: its sources and its pyproject."""
    return _git(package.root, "diff", "--name-only", tag, "--", *_shipped(package)).decode().splitlines()


def source_files(package: Package) -> list[str]:
    """Paths of the sources that git does not ignore, below the folder that holds the module."""
    unignored = ("--cached", "--others", "--exclude-standard")
    listed = _git(package.root, "ls-files", "-z", *unignored, "--", package.sources).decode().split("\0")
    folder = Path(package.sources).parent
    return [Path(name).relative_to(folder).as_posix() for name in listed if name and (package.root / name).exists()]


def uncommitted(package: Package) -> list[str]:
    """What the package ships that no commit has: a tag would not hold it."""
    return _git(package.root, "status", "--porcelain", "--", *_shipped(package)).decode().splitlines()


def _shipped(package: Package) -> list[str]:
    return [package.sources, (Path(package.path) / "pyproject.toml").as_posix()]


def sources_at(package: Package, tag: str, into: Path) -> Path:
    """Write the sources of the tag below a folder; returns the folder that holds the module."""
    archive = _git(package.root, "archive", tag, "--", package.sources)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return (into / package.sources).parent


def _git(root: Path, *arguments: str) -> bytes:
    """The output of a git command. Raises GitError when it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise GitError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout
