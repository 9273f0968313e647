"""Drop-in name: the Tenstorrent options of a vLLM configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def get_tt_config(vllm_config: VllmConfig) -> Mapping[str, Any]:
    """`vllm_config.additional_config["tt"]`, or an empty mapping when no option was given."""
    additional: object = vllm_config.additional_config
    options = cast("Mapping[str, Any]", additional).get("tt") if isinstance(additional, Mapping) else None
    return options or {}
