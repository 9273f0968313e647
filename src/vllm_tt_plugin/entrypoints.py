"""The two entry points that vLLM loads. They import nothing heavy: every vLLM process of an environment calls them."""

from __future__ import annotations


def platform_plugin() -> str | None:
    """The platform class, dotted, when this environment serves on Tenstorrent, else None (group vllm.platform_plugins)."""
    from tt_platform.vllm.activate import platform_plugin as activate

    return activate()


def register() -> None:
    """Register the model architectures (group vllm.general_plugins). vLLM calls it in every process."""
    from tt_platform.vllm.activate import register as activate

    activate()
