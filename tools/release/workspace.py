"""The packages of the workspace, as their pyprojects say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

META = "vllm-tt-plugin"


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution. ``path``: its folder below ``root``, "." for the meta-package; ``project``: that table."""

    root: Path
    path: str
    project: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.project["name"])

    @property
    def version(self) -> str:
        return str(self.project["version"])

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def folder(self) -> Path:
        return self.root / self.path

    @property
    def sources(self) -> str:
        """The module's folder below ``root``."""
        return (Path(self.path) / "src" / self.module).as_posix()

    @property
    def tag(self) -> str:
        """The tag of the present version."""
        return f"{self.name}-v{self.version}"


def packages(root: Path) -> list[Package]:
    """Every package, the meta-package last."""
    folders = [*sorted(path.parent for path in root.glob("packages/*/pyproject.toml")), root]
    return [_read(root, folder) for folder in folders]


def _read(root: Path, folder: Path) -> Package:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Package(root, folder.relative_to(root).as_posix(), project)


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
