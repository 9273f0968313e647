"""The two entry points that vLLM loads. They import nothing heavy: every vLLM process of an environment calls them."""

from __future__ import annotations

from multiprocessing import parent_process


def platform_plugin() -> str | None:
    """The platform class as a dotted name, or None in an environment that does not serve on Tenstorrent."""
    from tt_platform.vllm.activate import platform_plugin as activate

    return activate()


def register() -> None:
    """Register the model architectures (group vllm.general_plugins). vLLM calls it in every process.

    Raises CompatError when the installed vLLM is older than every row of the compat matrix; another one that is no
    tested row costs a warning.
    """
    from tt_platform.vllm.activate import platform_plugin as active
    from tt_platform.vllm.activate import register as activate

    # Said once a launch: the processes that vLLM starts load the plugin again.
    if active() is not None and parent_process() is None:
        from vllm_tt_plugin.compat import check_at_load, installed_vllm, load

        check_at_load(installed_vllm(), matrix=load())
    activate()
