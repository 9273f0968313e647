"""`resolve` one architecture, or list everything that is `known`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .architectures import UnknownVariant, built_in
from .names import bare_name
from .notices import warn_once
from .offer import read_offer
from .resolution import Resolution, Runtime, UnknownArchitecture


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
    offer = read_offer(environ, runtime, register_test_models)
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
    offer = read_offer(environ, runtime, register_test_models)
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
    row = built_in(architecture)
    if row is None:
        return ""
    if runtime == "host":
        return "It needs a card: the software mesh has no model for it. Set TT_RUNTIME=ttnn on a machine with one."
    if row.test_only:
        return 'It is a test model: pass --additional-config \'{"tt": {"register_test_models": true}}\'.'
    return "The built-in models are off: unset TT_VLLM_BUILTIN_MODELS, or put a bundle under EXTRA_MODELS_DIR."
