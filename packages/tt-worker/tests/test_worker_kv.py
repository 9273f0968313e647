"""The KV cache: layers by number, shapes by device, the model's own way of allocating."""

from __future__ import annotations

from typing import Any

import pytest

from tt_worker.kv import CacheLayout, LayerCache, allocate, layer_index
from tt_worker.methods import AdapterError

FULL = LayerCache(group=0, buffer=0, num_kv_heads=8, block_size=64, head_size=128, dtype="bf16")
SLIDING = LayerCache(group=1, buffer=0, num_kv_heads=8, block_size=64, head_size=128, dtype="bf16", window=512)


class Uniform:
    def allocate_kv_cache(self, shape: Any, dtype: Any, num_layers: int) -> Any:
        return shape, dtype, num_layers


class PerLayer:
    def allocate_kv_cache_per_layer(self, layers: Any) -> Any:
        return layers


@pytest.mark.parametrize(
    ("name", "index"),
    [("model.layers.17.self_attn", 17), ("layers.0", 0), ("language_model.model.layers.3.self_attn.attn", 3)],
)
def test_a_layer_is_known_by_its_number(name: str, index: int) -> None:
    assert layer_index(name) == index


@pytest.mark.parametrize("name", ["foo", "model.layers.x", "my_layers.3", "layers.3b"])
def test_a_layer_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(AdapterError, match=r"wants '\.\.\.layers\.<i>\.\.\.'"):
        layer_index(name)


@pytest.mark.parametrize(("devices", "heads"), [(1, 8), (2, 4), (8, 1), (32, 1)])
def test_heads_are_divided_among_the_devices_of_a_lane(devices: int, heads: int) -> None:
    assert FULL.shape(10, devices) == (10, heads, 64, 128)


def test_equal_layers_are_allocated_by_either_hook() -> None:
    layout = CacheLayout(10, (FULL, FULL.in_buffer(1)))
    assert allocate(Uniform(), layout, 2) == ((10, 4, 64, 128), "bf16", 2)
    assert allocate(PerLayer(), layout, 2) == [((10, 4, 64, 128), "bf16", 0), ((10, 4, 64, 128), "bf16", 1)]


def test_layers_of_two_groups_share_a_buffer_and_need_the_hook_by_layer() -> None:
    layout = CacheLayout(10, (SLIDING, FULL))
    assert [buffer for _, _, buffer in allocate(PerLayer(), layout, 1)] == [0, 0]
    assert layout.layer_groups == (1, 0)
    assert layout.groups == (FULL, SLIDING)
    with pytest.raises(AdapterError, match=r"Uniform.allocate_kv_cache allocates equal layers .*per_layer"):
        allocate(Uniform(), layout, 1)
