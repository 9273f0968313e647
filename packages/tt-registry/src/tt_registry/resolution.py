"""From an architecture to the class that serves it.

Order, first match wins: `TT_MODEL_CLASS_OVERRIDES`, `EXTRA_MODELS_DIR`, then the built-in table; under the runtime
"host", the host models take the place of the built-in table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from . import architectures, bundles, overrides
from .architectures import TTT, TTT_ROOTS, Architecture, DataParallel, UnknownVariant, Variant
from .bundles import Bundle
from .hostmodels import HostModel, read_host_models
from .location import Missing, locate
from .names import bare_name, tt_name
from .notices import warn_once
from .overrides import Override

Runtime = Literal["ttnn", "host"]
Source = Literal["override", "bundle", "built-in", "host"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """The class that serves an architecture, and what is known of it without importing it.

    architecture:     as in a checkpoint's config.json
    tt_architecture:  the same with the TT prefix; the name that is registered in vLLM
    target:           "module:Class"
    source, origin:   which list it comes from, and the place to look at if it is not the expected one
    variant:          chosen implementation, None when the architecture has one only
    variants:         all implementations, default first; empty when there is one only
    variant_variable: the environment variable that chooses
    data_parallel:    how --data_parallel_size is run
    importable:       the module was found; `reason` says why not. That the class is in it is seen by load_class alone
    search_path:      folders that have to be on sys.path, behind everything else, before the target is imported
    """

    architecture: str
    target: str
    source: Source
    origin: str
    variant: str | None = None
    variants: tuple[str, ...] = ()
    variant_variable: str | None = None
    data_parallel: DataParallel = "standard"
    multimodal: bool = False
    moe: bool = False
    importable: bool = True
    reason: str = ""
    search_path: tuple[str, ...] = ()
    also_bare: bool = False
    notes: str = ""

    @property
    def tt_architecture(self) -> str:
        return tt_name(self.architecture)

    @property
    def module(self) -> str:
        return self.target.partition(":")[0]

    @property
    def class_name(self) -> str:
        return self.target.partition(":")[2]


class UnknownArchitecture(ValueError):
    """Nothing serves this architecture."""

    def __init__(self, architecture: str, registered: tuple[str, ...], hint: str = "") -> None:
        self.architecture = architecture
        self.registered = registered
        names = ", ".join(map(tt_name, registered)) or "none"
        super().__init__(
            f"No Tenstorrent model serves the architecture {architecture!r}. Registered: {names}. "
            + (
                hint
                or "To add one, put its bundle under EXTRA_MODELS_DIR or name its class in TT_MODEL_CLASS_OVERRIDES."
            )
        )


@dataclass(frozen=True, slots=True)
class _Offer:
    """Everything that an environment offers, each by bare architecture name."""

    environ: Mapping[str, str]
    overrides: Mapping[str, Override]
    bundles: Mapping[str, Bundle]
    host: Mapping[str, HostModel]
    table: Mapping[str, Architecture]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.overrides, *self.bundles, *self.host, *self.table]))

    @property
    def search_path(self) -> tuple[str, ...]:
        return tuple(str(bundle.folder) for bundle in self.bundles.values())

    def resolve(self, name: str) -> Resolution | None:
        if name in self.overrides:
            return self._override(self.overrides[name])
        if name in self.bundles:
            return self._bundle(self.bundles[name])
        if name in self.host:
            return self._host(self.host[name])
        if name in self.table:
            return self._built_in(self.table[name])
        return None

    def _override(self, override: Override) -> Resolution:
        like, variant = _like(override.architecture, self.environ, str(override.target))
        return self._checked(
            Resolution(
                override.architecture,
                str(override.target),
                "override",
                overrides.VARIABLE,
                data_parallel=variant.data_parallel,
                multimodal=like.multimodal,
                moe=like.moe,
                search_path=self.search_path,
                also_bare=True,
            )
        )

    def _bundle(self, bundle: Bundle) -> Resolution:
        said = bundle.metadata
        like, variant = _like(said.architecture, self.environ, str(said.target))
        return self._checked(
            Resolution(
                said.architecture,
                str(said.target),
                "bundle",
                bundle.origin,
                data_parallel=variant.data_parallel if said.data_parallel is None else said.data_parallel,
                multimodal=like.multimodal if said.multimodal is None else said.multimodal,
                moe=like.moe if said.moe is None else said.moe,
                search_path=self.search_path,
            )
        )

    def _host(self, model: HostModel) -> Resolution:
        return self._checked(Resolution(model.architecture, str(model.target), "host", model.package))

    def _built_in(self, row: Architecture) -> Resolution:
        variant = row.select(self.environ)
        return self._checked(
            Resolution(
                row.name,
                _place(variant.target),
                "built-in",
                f"{row.variable}={variant.name}" if row.variable else "built-in table",
                variant=variant.name or None,
                variants=row.variant_names,
                variant_variable=row.variable,
                data_parallel=variant.data_parallel,
                multimodal=row.multimodal,
                moe=row.moe,
                also_bare=row.also_bare,
                notes=variant.notes or row.notes,
            )
        )

    @staticmethod
    def _checked(resolution: Resolution) -> Resolution:
        found = locate(resolution.module, behind=resolution.search_path)
        if not isinstance(found, Missing):
            return resolution
        return replace(resolution, importable=False, reason=f"{found}; {_advice(found.part)}")


def _advice(part: str) -> str:
    if part.partition(".")[0] == "models":
        return "tt-metal's models/ tree must be on PYTHONPATH (PYTHONPATH=$TT_METAL_HOME)"
    return "its folder must be on PYTHONPATH, in the worker's process too"


def _place(target: str) -> str:
    """A table target with the package root that this machine has."""
    if not target.startswith(TTT):
        return target
    module = target.partition(":")[0]
    for root in TTT_ROOTS:
        if not isinstance(locate(module.replace(TTT, root)), Missing):
            return target.replace(TTT, root)
    return target.replace(TTT, TTT_ROOTS[-1])


_UNSAID = Architecture("", (Variant("", ""),))


def _like(name: str, environ: Mapping[str, str], target: str) -> tuple[Architecture, Variant]:
    """What an override or a bundle does not say about itself: as its architecture has it in the table.

    A target that is itself in the table brings its own variant along.
    """
    row = architectures.built_in(name) or _UNSAID
    for variant in row.variants:
        if target in (variant.target.replace(TTT, root) for root in TTT_ROOTS):
            return row, variant
    try:
        return row, row.select(environ)
    except UnknownVariant:  # the table's choice is not the one that is served here
        return row, row.variants[0]


def _offer(environ: Mapping[str, str], runtime: Runtime, register_test_models: bool) -> _Offer:
    scan = bundles.read_bundles(environ)
    for skipped in scan.skipped:
        warn_once(str(skipped))
    host: tuple[HostModel, ...] = ()
    table: tuple[Architecture, ...] = ()
    if runtime == "host":
        declared = read_host_models()
        host = declared.models
        for problem in declared.problems:
            warn_once(problem)
    elif runtime == "ttnn":
        table = architectures.served(environ, register_test_models=register_test_models)
    else:
        raise ValueError(f"runtime={runtime!r} is not a runtime: allowed ttnn, host")
    return _Offer(
        environ,
        {o.architecture: o for o in overrides.read_overrides(environ)},
        {b.metadata.architecture: b for b in scan.bundles},
        {m.architecture: m for m in host},
        {row.name: row for row in table},
    )


def resolve(
    architecture: str,
    *,
    environ: Mapping[str, str] = os.environ,
    runtime: Runtime = "ttnn",
    register_test_models: bool = False,
) -> Resolution:
    """The class that serves an architecture, named with or without the TT prefix.

    Nothing is imported and `sys.path` is not changed.

    Raises:
        UnknownArchitecture: nothing serves it.
        UnknownVariant: its variable has a value that is not in the table.
        OverrideError: `TT_MODEL_CLASS_OVERRIDES` cannot be read.
    """
    offer = _offer(environ, runtime, register_test_models)
    found = offer.resolve(bare_name(architecture))
    if found is None:
        raise UnknownArchitecture(architecture, offer.names, _hint(architecture, environ, runtime))
    return found


def known(
    *,
    environ: Mapping[str, str] = os.environ,
    runtime: Runtime = "ttnn",
    register_test_models: bool = False,
) -> tuple[Resolution, ...]:
    """Everything that is served, in order of precedence.

    A family whose variable has an unknown value is left out, with one warning; it is an error only for who serves it.

    Raises:
        OverrideError: `TT_MODEL_CLASS_OVERRIDES` cannot be read.
    """
    offer = _offer(environ, runtime, register_test_models)
    found: list[Resolution] = []
    for name in offer.names:
        try:
            resolution = offer.resolve(name)
        except UnknownVariant as error:
            warn_once(f"{name} is not registered: {error}")
            continue
        if resolution is not None:
            found.append(resolution)
    return tuple(found)


def _hint(architecture: str, environ: Mapping[str, str], runtime: Runtime) -> str:
    """What to do when the table has the architecture but the environment does not offer it."""
    row = architectures.built_in(architecture)
    if row is None:
        return ""
    if runtime == "host":
        return "It needs a card: the software mesh has no model for it. Set TT_RUNTIME=ttnn on a machine with one."
    if row.test_only:
        return 'It is a test model: pass --additional-config \'{"tt": {"register_test_models": true}}\'.'
    return "The built-in models are off: unset TT_VLLM_BUILTIN_MODELS, or put a bundle under EXTRA_MODELS_DIR."
