"""Everything that an environment offers, and which of it comes first.

Order: `TT_MODEL_CLASS_OVERRIDES`, `EXTRA_MODELS_DIR`, then the built-in table; under the runtime "host", the host
models take the place of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import architectures, bundles, overrides
from .architectures import TTT, TTT_ROOTS, Architecture, UnknownVariant, Variant
from .bundles import Bundle
from .hostmodels import HostModel, read_host_models
from .location import Missing, locate
from .notices import warn_once
from .overrides import Override
from .resolution import Resolution, Runtime


@dataclass(frozen=True, slots=True)
class Offer:
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
        """The first list that has this bare name decides. Raises UnknownVariant for a row of the table."""
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
        """Run like its architecture in the table: whether it is lanes does not depend on the mesh."""
        like, variant = _like(model.architecture, self.environ, str(model.target))
        return self._checked(
            Resolution(
                model.architecture,
                str(model.target),
                "host",
                model.package,
                data_parallel=variant.data_parallel,
                moe=like.moe,
            )
        )

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


def read_offer(environ: Mapping[str, str], runtime: Runtime, register_test_models: bool) -> Offer:
    """Read every list that this environment and runtime have. What is broken is left out, with one warning each.

    Raises:
        OverrideError: `TT_MODEL_CLASS_OVERRIDES` cannot be read.
        ValueError: the runtime is neither "ttnn" nor "host".
    """
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
    return Offer(
        environ,
        {o.architecture: o for o in overrides.read_overrides(environ)},
        {b.metadata.architecture: b for b in scan.bundles},
        {m.architecture: m for m in host},
        {row.name: row for row in table},
    )
