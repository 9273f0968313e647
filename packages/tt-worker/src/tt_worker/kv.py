"""The KV cache as the model allocates it."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from tt_worker.methods import AdapterError, Method, optional_method


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's place in the KV cache.

    group:        which page table its blocks stand in
    buffer:       layers with the same number share one buffer
    num_kv_heads: of the whole model
    dtype:        torch dtype that the engine plans with; the model chooses its own
    window:       tokens that the layer looks back at; None: all
    """

    group: int
    buffer: int
    num_kv_heads: int
    block_size: int
    head_size: int
    dtype: Any
    window: int | None = None

    def in_buffer(self, buffer: int) -> LayerCache:
        return dataclasses.replace(self, buffer=buffer)

    def shape(self, num_blocks: int, devices_per_lane: int) -> tuple[int, int, int, int]:
        """(blocks, KV heads on one device, block size, head size). Source: tt-metal contract 1.3."""
        if devices_per_lane < 1:
            raise ValueError(f"a lane has at least one device, not {devices_per_lane}")
        heads = self.num_kv_heads // min(devices_per_lane, self.num_kv_heads)
        return num_blocks, heads, self.block_size, self.head_size


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """num_blocks of one lane's cache, and its layers in order."""

    num_blocks: int
    layers: tuple[LayerCache, ...]

    @property
    def groups(self) -> tuple[LayerCache, ...]:
        """One layer of each group, in the groups' order."""
        first: dict[int, LayerCache] = {}
        for layer in self.layers:
            first.setdefault(layer.group, layer)
        return tuple(first[number] for number in sorted(first))

    @property
    def layer_groups(self) -> tuple[int, ...]:
        """The group of each layer."""
        return tuple(layer.group for layer in self.layers)


_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")


def layer_index(name: str) -> int:
    """The number in `model.layers.17.self_attn`.

    Raises:
        AdapterError: there is none.
    """
    found = _LAYER.search(name)
    if found is None:
        raise AdapterError(f"KV cache layer {name!r} has no number: tt-metal contract 1.3 wants '...layers.<i>...'")
    return int(found.group(1))


def allocate(model: Any, layout: CacheLayout, devices_per_lane: int) -> Any:
    """Let the model allocate its cache. The answer is opaque and is handed back verbatim in every call.

    Per layer when the model has that hook, else uniformly. Source: tt-metal contract 1.3.

    Raises:
        AdapterError: layers differ, and the model can allocate only equal ones.
    """
    shapes = [(layer.shape(layout.num_blocks, devices_per_lane), layer.dtype, layer.buffer) for layer in layout.layers]
    per_layer = optional_method(model, "allocate_kv_cache_per_layer", "1.3")
    if per_layer is not None:
        return model.allocate_kv_cache_per_layer(shapes)
    uniform = Method(model, "allocate_kv_cache", "1.3")
    if len({(shape, dtype) for shape, dtype, _ in shapes}) > 1 or len(layout.groups) > 1:
        raise AdapterError(
            f"{uniform.label} allocates equal layers of one group, and this model's differ: tt-metal contract 1.3 "
            "wants allocate_kv_cache_per_layer"
        )
    shape, dtype, _ = shapes[0]
    return model.allocate_kv_cache(shape, dtype, len(shapes))
