"""The two entry points of the plugin. Every vLLM process of an environment calls them, with or without a card."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import MutableMapping
from importlib import import_module, util

from tt_platform.rules.environment import V2_VARIABLE
from tt_platform.runtime import RUNTIME_VARIABLE, RuntimeChoice, RuntimeChoiceError

logger = logging.getLogger("vllm.tt.activate")

# What importing a broken installation of ttnn can raise. Another platform must still come up.
BROKEN_INSTALL = (ImportError, OSError, RuntimeError, SystemError, AttributeError, TypeError, ValueError, LookupError)

PLATFORM_CLASS = "vllm_tt_plugin.platform.TTPlatform"


def platform_plugin() -> str | None:
    """The platform class when this environment serves on Tenstorrent, else None, silently.

    A wrong ``TT_RUNTIME`` activates the platform too: vLLM swallows exceptions of platform plugins, so the platform's
    first hook is where the error can reach the user.
    """
    try:
        choice = RuntimeChoice.from_environ()
    except RuntimeChoiceError as error:
        logger.error("%s", error)
        return PLATFORM_CLASS
    if choice is RuntimeChoice.AUTO and not ttnn_imports():
        return None
    return PLATFORM_CLASS


@functools.cache
def ttnn_imports() -> bool:
    """Whether ``import ttnn`` works. No device is opened by it, and TT_VISIBLE_DEVICES may still be set afterwards."""
    try:
        spec = util.find_spec("ttnn")
        if spec is None or spec.origin is None:  # a folder named ttnn in the working directory has no origin
            logger.debug(
                "The Tenstorrent platform is not active: ttnn is not installed and %s is unset", RUNTIME_VARIABLE
            )
            return False
        import_module("ttnn")
    except BROKEN_INSTALL as error:
        logger.debug("The Tenstorrent platform is not active: ttnn cannot be imported: %r", error)
        return False
    return True


def register() -> None:
    """Pin the V1 model runner and register the model architectures; nothing when the platform is not active."""
    if platform_plugin() is None:
        return
    if os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
        logger.warning("VLLM_TARGET_DEVICE=cpu makes vLLM 0.28 and later ignore the Tenstorrent platform: unset it")
    pin_v1_runner(os.environ)
    from tt_platform.vllm.models import register_early

    register_early()


def pin_v1_runner(environ: MutableMapping[str, str]) -> None:
    """Tell vLLM to keep its V1 model runner contract, unless the operator said something: that is a rule's to refuse.

    This is the one place where the plugin writes the environment for vLLM. The variable is vLLM's only switch, it is
    read before any hook of a platform runs, and it must reach the processes that vLLM starts.
    """
    if not environ.get(V2_VARIABLE):
        environ[V2_VARIABLE] = "0"
