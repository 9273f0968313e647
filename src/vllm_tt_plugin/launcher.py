"""Drop-in name: the multi-host launcher. vLLM has no hook that would use it, so it says so instead of starting."""

from __future__ import annotations

from typing import Any


class TTCoreEngineLauncher:
    """What a configuration may name as `engine_core_launcher_cls`, a setting that no vLLM of the matrix has."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise NotImplementedError(
            "vllm_tt_plugin.launcher.TTCoreEngineLauncher: data parallelism over several hosts (MPI) is not served; "
            "use --data-parallel-size on one host"
        )
