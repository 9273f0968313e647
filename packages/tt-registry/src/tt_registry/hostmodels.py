"""Models of the software mesh: entry points of the group `tt_registry.host_models`.

The entry point's name is the Hugging Face architecture, its value `module:Class`. The package that brings the software
mesh declares them, so nothing here imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

from .names import Target, TargetError, bare_name

GROUP = "tt_registry.host_models"


@dataclass(frozen=True, slots=True)
class HostModel:
    """`architecture` is bare; `package` is the distribution that declares it, empty when unknown."""

    architecture: str
    target: Target
    package: str


@dataclass(frozen=True, slots=True)
class HostModels:
    """What is declared, by architecture, and what could not be used, as ready sentences."""

    models: tuple[HostModel, ...]
    problems: tuple[str, ...]


def read_host_models() -> HostModels:
    """Every host model of the installed packages. Of two for one architecture, the first by `module:Class` is used."""
    models: dict[str, HostModel] = {}
    problems: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist is not None else ""
        try:
            model = HostModel(bare_name(point.name), Target.parse(point.value), package)
        except TargetError as error:
            problems.append(f"Skipping {GROUP} entry {point.name!r} of {package or 'an unknown package'}: {error}")
            continue
        used = models.setdefault(model.architecture, model)
        if used.target != model.target:
            problems.append(
                f"Two packages declare a host model for {model.architecture}: "
                f"using {used.target} of {used.package}, not {model.target} of {model.package}"
            )
    return HostModels(tuple(models.values()), tuple(problems))
