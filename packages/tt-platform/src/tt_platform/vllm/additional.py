"""The plugin's own entries in vLLM's ``additional_config``. They travel with the configuration to every process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from tt_platform.admission import BlockLaunch
from tt_scheduler.blocks import BlockOutput

if TYPE_CHECKING:
    from vllm.config import VllmConfig

LANES = "_tt_resolved_lane_count"
DEVICE_CHECKED = "_tt_device_checked"
BLOCK_OUTPUT = "_tt_block_output"
CLOSING_WINDOW = "_tt_closing_window"
RANK_GROUPS = "_tt_standard_dp_visible_groups"
RANK_GRIDS = "_tt_standard_dp_mesh_grids"


def entries(vllm_config: VllmConfig) -> Mapping[str, object]:
    """``additional_config`` when it is a mapping, else nothing."""
    additional: object = vllm_config.additional_config
    return cast("Mapping[str, object]", additional) if isinstance(additional, Mapping) else {}


def lane_count(vllm_config: VllmConfig) -> int:
    """In-process lanes of the launch; 1 without any."""
    lanes = entries(vllm_config).get(LANES, 1)
    return lanes if isinstance(lanes, int) else 1


def block_output(vllm_config: VllmConfig) -> BlockOutput:
    """What the model class declares of its block output."""
    return BlockOutput.from_mapping(entries(vllm_config).get(BLOCK_OUTPUT))


def block_launch(vllm_config: VllmConfig) -> BlockLaunch | None:
    """What the launch serves when its model puts out blocks, else None."""
    blocks = block_output(vllm_config)
    return BlockLaunch(blocks.width, vllm_config.model_config.max_model_len) if blocks.blocks else None


def pools(vllm_config: VllmConfig | None) -> bool:
    """Whether the launch embeds prompts and generates nothing."""
    model = None if vllm_config is None else vllm_config.model_config
    return model is not None and model.runner_type == "pooling"


def put(vllm_config: VllmConfig, key: str, value: object) -> None:
    """Store an entry. The mapping is replaced, not changed: it may be the operator's own."""
    vllm_config.additional_config = {**entries(vllm_config), key: value}
