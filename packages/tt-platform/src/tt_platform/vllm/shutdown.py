"""The end of an engine: requests are aborted at once, the mesh gets the time to be closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tt_platform.vllm.additional import CLOSING_WINDOW, entries

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def abort_requests_at_shutdown(vllm_config: VllmConfig) -> None:
    """Call in the engine's process. Its copy of the configuration goes back to what the operator left: no draining.

    One field of vLLM says two things: how long requests may drain, read by the engine, and how long the engine may take
    to end, read by the process that started it. The rule `closing_window` raised the second.
    """
    if entries(vllm_config).get(CLOSING_WINDOW):
        vllm_config.shutdown_timeout = 0
