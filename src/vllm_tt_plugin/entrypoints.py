"""The two entry points that vLLM loads. They import nothing heavy: every vLLM process of an environment calls them."""

from __future__ import annotations


def platform_plugin() -> str | None:
    """The platform class as a dotted name, or None in an environment that does not serve on Tenstorrent."""
    from tt_platform.vllm.activate import platform_plugin as activate

    return activate()


def register() -> None:
    """Register the model architectures (group vllm.general_plugins). vLLM calls it in every process."""
    from tt_platform.vllm.activate import register as activate

    activate()
