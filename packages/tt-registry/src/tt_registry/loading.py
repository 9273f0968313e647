"""From a resolution to the class itself. The one place in the core that imports a model."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from .lookup import resolve
from .names import Target
from .resolution import Resolution, Runtime, UnknownArchitecture


class ModelNotImportable(ImportError):
    """The class that should serve a model cannot be imported."""


def extend_path(folders: Iterable[str]) -> None:
    """Append folders to `sys.path`, each once, never before anything that is there: an installed package wins."""
    for folder in folders:
        if folder not in sys.path:
            sys.path.append(folder)


def load_class(target: str | Resolution) -> type:
    """Import the class of `module:Class`, or of a resolution (whose bundle folders then go to the end of `sys.path`).

    Raises:
        ModelNotImportable: the module, something that it imports, or the class is missing. Names which.
        TargetError: the text is not `module:Class`.
    Any other exception of the module's own code passes unchanged.
    """
    if isinstance(target, Resolution):
        extend_path(target.search_path)
        wanted, whose = Target.parse(target.target), f"{target.tt_architecture} is served by {target.target}"
    else:
        wanted = Target.parse(target)
        whose = f"Model class {target}"
    try:
        module = importlib.import_module(wanted.module)
    except ImportError as error:
        raise ModelNotImportable(f"{whose}, which cannot be imported: {_why(wanted, error)}") from error
    loaded: object = getattr(module, wanted.class_name, None)
    if isinstance(loaded, type):
        return loaded
    classes = [name for name, value in vars(module).items() if isinstance(value, type)]
    near = difflib.get_close_matches(wanted.class_name, classes, n=3) or sorted(classes)[:8]
    where = getattr(module, "__file__", None) or wanted.module
    raise ModelNotImportable(
        f"{whose}, but {where} has no class {wanted.class_name!r}; it has {', '.join(near) or 'no class at all'}"
    )


def models_for(
    architectures: Sequence[str],
    *,
    environ: Mapping[str, str] = os.environ,
    runtime: Runtime = "ttnn",
    register_test_models: bool = False,
) -> tuple[Resolution, type]:
    """The first of a checkpoint's architectures that is served, and its class, imported.

    Raises:
        UnknownArchitecture: none of them is served; speaks of the first.
        ModelNotImportable, UnknownVariant, OverrideError: as `load_class` and `resolve`.
    """
    first: UnknownArchitecture | None = None
    for architecture in architectures:
        try:
            resolution = resolve(
                architecture, environ=environ, runtime=runtime, register_test_models=register_test_models
            )
        except UnknownArchitecture as error:
            first = first or error
        else:
            return resolution, load_class(resolution)
    if first is None:
        raise ValueError("architectures is empty: the checkpoint's config.json must name at least one")
    raise first


def _why(wanted: Target, error: ImportError) -> str:
    missing = error.name or ""
    if wanted.module == missing or wanted.module.startswith(f"{missing}."):
        if missing.partition(".")[0] == "models":
            return f"{error}. Put tt-metal on PYTHONPATH (PYTHONPATH=$TT_METAL_HOME holds the package 'models')"
        return f"{error}. Put the folder that holds {missing.partition('.')[0]!r} on PYTHONPATH, for the worker too"
    if missing.partition(".")[0] == "ttnn":
        return f"{error}. It needs ttnn: install tt-metal's Python package into this environment"
    return f"its own imports fail: {error}"
