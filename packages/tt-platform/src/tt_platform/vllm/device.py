"""Whether the chosen runtime has a device, asked before the engine starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tt_platform.detect import device_problem
from tt_platform.runtime import RuntimeChoice, RuntimeUnavailable, load_runtime
from tt_platform.vllm.additional import DEVICE_CHECKED, entries, put

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """The runtime's name, why it cannot be used, and the fabric names that it knows."""

    runtime: str
    problem: str | None = None
    fabric_names: tuple[str, ...] | None = None


def check_device(vllm_config: VllmConfig) -> DeviceCheck:
    """Load the runtime and look for a chip.

    The chips are counted in a child process, so that this one, which starts the engine, never holds a device. It is
    done once a launch: a positive answer is kept in the configuration, which travels to the engine and its worker.

    Raises:
        RuntimeChoiceError: TT_RUNTIME is none of the three.
    """
    choice = RuntimeChoice.from_environ()
    name = "host" if choice is RuntimeChoice.HOST else "ttnn"
    try:
        runtime = load_runtime(choice)
    except RuntimeUnavailable as error:
        return DeviceCheck(name, str(error))
    names = runtime.fabric_config_names()
    if choice is RuntimeChoice.HOST or entries(vllm_config).get(DEVICE_CHECKED):
        return DeviceCheck(name, None, names)
    problem = device_problem(os.environ)
    if problem is None:
        put(vllm_config, DEVICE_CHECKED, True)
    return DeviceCheck(name, problem, names)
