"""The served model of a configuration, as the registry knows it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tt_platform.runtime import RuntimeChoice, RuntimeChoiceError
from tt_platform.sight import takes_images
from tt_registry import (
    Capabilities,
    CapabilityError,
    ModelNotImportable,
    OverrideError,
    Resolution,
    UnknownArchitecture,
    UnknownVariant,
    bare_name,
    load_class,
    resolve,
    tt_name,
)

if TYPE_CHECKING:
    from tt_registry import Runtime

logger = logging.getLogger("vllm.tt.models")


def registry_runtime() -> Runtime:
    """The registry's name of the chosen runtime. A wrong TT_RUNTIME is reported elsewhere and counts as ttnn here."""
    try:
        return "host" if RuntimeChoice.from_environ() is RuntimeChoice.HOST else "ttnn"
    except RuntimeChoiceError:
        return "ttnn"


def register_architectures() -> None:
    """Register every architecture in vLLM, lazily. Repeating it changes nothing.

    tt-metal's test models are among them: vLLM looks an architecture up before a platform sees the options. Without
    the option ``register_test_models`` they are refused like any architecture that is not served.
    """
    from tt_registry.vllm import register_models

    register_models(runtime=registry_runtime(), register_test_models=True)


def register_early() -> None:
    """Register before there is a configuration. An error is logged here, and raised where vLLM shows it as one line."""
    try:
        register_architectures()
    except OverrideError as error:
        logger.error("%s", error)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A resolved architecture. ``problem`` is a whole line for the operator when no class can serve it.

    ``batch_sizes``: rows a lane that the class can be loaded with, ascending; empty: any number.
    ``pools``: it embeds prompts: it answers ``forward``, and has no ``prefill_forward``.
    ``missing_hooks``: of those that block output needs, the ones that the class does not have.
    """

    resolution: Resolution | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    problem: str | None = None
    batch_sizes: tuple[int, ...] = ()
    missing_hooks: tuple[str, ...] = ()
    pools: bool = False


def _of_launcher(architecture: str) -> Resolution | None:
    from tt_registry.vllm import foreign_target

    target = foreign_target(tt_name(architecture))
    return Resolution(bare_name(architecture), target, "launcher", "vLLM's model registry") if target else None


def _sighted(resolution: Resolution, model_class: type) -> Resolution:
    """No table has the host models, nor a launcher's."""
    known = resolution.source not in ("host", "launcher")
    return replace(resolution, multimodal=takes_images(model_class, declared=resolution.multimodal if known else None))


def _missing(model_class: type) -> tuple[str, ...]:
    return tuple(name for name in _BLOCK_HOOKS if not callable(getattr(model_class, name, None)))


def _pools(model_class: type) -> bool:
    """Source: tt-metal contract 1.13."""
    return not hasattr(model_class, "prefill_forward") and callable(getattr(model_class, "forward", None))


_BLOCK_HOOKS = ("release_request", "release_persistent_capture", "note_state_slots_moved")


def served_model(architectures: list[str], *, test_models: bool) -> ServedModel:
    """The class for the first architecture of a checkpoint that has one, and what it declares.

    The class is imported: what a model can do stands in a class attribute. What a launcher registered in vLLM under
    the TT-prefixed name comes first: it is the class that vLLM would load.
    """
    problem: str | None = None
    for architecture in architectures:
        try:
            resolution = _of_launcher(architecture) or resolve(
                architecture, runtime=registry_runtime(), register_test_models=test_models
            )
        except (UnknownArchitecture, UnknownVariant) as error:
            problem = problem or str(error)
            continue
        try:
            model_class = load_class(resolution)
            declared = getattr(model_class, "tt_supported_decode_batch_sizes", None)
            sizes = tuple(sorted(declared)) if declared else resolution.batch_sizes
            return ServedModel(
                _sighted(resolution, model_class),
                Capabilities.of(model_class),
                batch_sizes=sizes,
                missing_hooks=_missing(model_class),
                pools=_pools(model_class),
            )
        except (ModelNotImportable, CapabilityError) as error:
            return ServedModel(resolution, problem=str(error))
    return ServedModel(problem=problem)
