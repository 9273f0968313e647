"""A built wheel: what is in it, and what its metadata asks for."""

from __future__ import annotations

import configparser
import subprocess
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

from release.workspace import Package, normal


class BuildError(RuntimeError):
    """The wheels could not be built; the text is the builder's own."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """``files``: its own, without the metadata folder;  ``entry_points``: (group, name) -> target."""

    files: frozenset[str]
    metadata: Message
    licensed: bool
    entry_points: Mapping[tuple[str, str], str]

    @property
    def requirements(self) -> list[Requirement]:
        return [Requirement(line) for line in self.metadata.get_all("Requires-Dist") or []]


def build(root: Path, uv: str, folder: Path) -> dict[str, Wheel]:
    """Every package's wheel, by its distribution's name. Raises BuildError."""
    command = [uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(folder), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip())
    wheels = [read(path) for path in sorted(folder.glob("*.whl"))]
    return {normal(str(wheel.metadata["Name"])): wheel for wheel in wheels}


def read(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        inside = {name.split(".dist-info/", 1)[1]: name for name in names if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(inside["METADATA"]).decode())
        declared = configparser.ConfigParser(delimiters="=")
        declared.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
        if "entry_points.txt" in inside:
            declared.read_string(archive.read(inside["entry_points.txt"]).decode())
    return Wheel(
        files=frozenset(set(names) - set(inside.values())),
        metadata=metadata,
        licensed=any(name.startswith("licenses/") for name in inside),
        entry_points={
            (group, name): target for group in declared.sections() for name, target in declared[group].items()
        },
    )


def content_problems(package: Package, wheel: Wheel, sources: Collection[str]) -> list[str]:
    """How a wheel differs from what the package's sources and pyproject say. ``sources``: paths below its src."""
    wanted = set(sources) | _forced(package)
    found = [f"{name} is not in the wheel" for name in sorted(wanted - wheel.files)]
    found += [f"{name} is in the wheel and not in the sources" for name in sorted(wheel.files - wanted)]
    if f"{package.module}/py.typed" not in wheel.files:
        found.append("py.typed is missing: its types would be ignored")
    if not wheel.licensed:
        found.append("the text of the licence is missing: LICENSE belongs beside pyproject.toml")
    for field, value in (("Name", package.name), ("Version", package.version)):
        if wheel.metadata[field] != value:
            found.append(f"{field} is {wheel.metadata[field]}, pyproject says {value}")
    if not str(wheel.metadata.get_payload()).strip():
        found.append("there is no description: README.md is not in the metadata")
    if wheel.entry_points != (wanted_points := _entry_points(package)):
        found.append(f"entry points are {dict(wheel.entry_points)}, pyproject says {dict(wanted_points)}")
    return found


def _forced(package: Package) -> set[str]:
    return {"vllm_tt_plugin/compat.toml"} if package.module == "vllm_tt_plugin" else set()


def _entry_points(package: Package) -> dict[tuple[str, str], str]:
    groups = dict(package.project.get("entry-points", {}))
    if scripts := package.project.get("scripts"):
        groups["console_scripts"] = scripts
    return {(group, name): target for group, points in groups.items() for name, target in points.items()}
