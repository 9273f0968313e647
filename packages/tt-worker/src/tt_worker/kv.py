"""The KV cache as the model allocates it."""

from __future__ import annotations

from typing import Any

from tt_worker.methods import Method, optional_method


def cache_shape(
    *, num_blocks: int, num_kv_heads: int, block_size: int, head_size: int, devices_per_lane: int
) -> tuple[int, int, int, int]:
    """(blocks, KV heads on one device, block size, head size). Source: tt-metal contract 1.3."""
    if devices_per_lane < 1:
        raise ValueError(f"a lane has at least one device, not {devices_per_lane}")
    return num_blocks, num_kv_heads // min(devices_per_lane, num_kv_heads), block_size, head_size


def allocate(model: Any, shape: tuple[int, int, int, int], dtype: Any, num_layers: int) -> Any:
    """Let the model allocate its cache. The answer is opaque and is handed back verbatim in every call.

    Per layer when the model has that hook (each layer its own buffer), else uniformly. Source: tt-metal contract 1.3.
    """
    per_layer = optional_method(model, "allocate_kv_cache_per_layer", "1.3")
    if per_layer is not None:
        return model.allocate_kv_cache_per_layer([(shape, dtype, layer) for layer in range(num_layers)])
    Method(model, "allocate_kv_cache", "1.3")
    return model.allocate_kv_cache(shape, dtype, num_layers)
