"""vLLM's KV cache specification and configuration, to and from plain numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from tt_worker.kv import CacheLayout, LayerCache, layer_index
from tt_worker.methods import AdapterError
from tt_worker.vllm._compat import get_kv_cache_groups

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

_HOOK = "get_kv_cache_spec"


def kv_cache_spec(model_class: type, vllm_config: VllmConfig) -> dict[str, KVCacheSpec]:
    """What the model class says of its layers, else one layer that stands for all: they share one page table.

    Source: tt-metal contract 1.3.

    Raises:
        AdapterError: the hook returned something else than layer names with specifications. Its own errors pass.
    """
    hook = getattr(model_class, _HOOK, None)
    spec = None if hook is None else hook(vllm_config)
    if spec is None:
        return _uniform(vllm_config)
    if not isinstance(spec, dict) or not all(isinstance(value, KVCacheSpec) for value in spec.values()):
        raise AdapterError(
            f"{model_class.__name__}.{_HOOK} returned {type(spec).__name__}: tt-metal contract 1.3 wants a dict of "
            "layer names and KVCacheSpec, or None"
        )
    return spec


def with_margin(spec: dict[str, KVCacheSpec], tokens: int) -> dict[str, KVCacheSpec]:
    """The same, with sliding windows that keep so many tokens more.

    First positions of a prefill are rounded down: what is computed again must see all that it saw the first time.
    """
    return {
        name: replace(layer, sliding_window=layer.sliding_window + tokens)
        if isinstance(layer, SlidingWindowSpec)
        else layer
        for name, layer in spec.items()
    }


def _uniform(vllm_config: VllmConfig) -> dict[str, KVCacheSpec]:
    model = vllm_config.model_config
    kind = MLAAttentionSpec if model.use_mla else FullAttentionSpec
    return {
        "model.layers.0": kind(
            block_size=vllm_config.cache_config.block_size,
            # A latent is shared by all heads.
            num_kv_heads=1 if model.use_mla else model.get_total_num_kv_heads(),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
    }


def sliding_window(spec: dict[str, KVCacheSpec]) -> int | None:
    """The largest window of a layer, tokens; None when every layer attends to everything."""
    windows = [window for layer in spec.values() if (window := getattr(layer, "sliding_window", None))]
    return max(windows, default=None)


def bytes_per_block(vllm_config: VllmConfig, spec: dict[str, KVCacheSpec]) -> int:
    """Bytes that vLLM's planner counts for one block: of all layers, or with several groups of the largest one.

    Groups share buffers, and the planner forms them itself.
    """
    groups = get_kv_cache_groups(vllm_config, dict(spec))
    if len(groups) == 1:
        return sum(layer.page_size_bytes for layer in spec.values())
    return max(len(group.layer_names) * group.kv_cache_spec.page_size_bytes for group in groups)


def cache_layout(vllm_config: VllmConfig, config: KVCacheConfig) -> CacheLayout:
    """Where each layer of the model keeps its keys and values, as vLLM's planner decided.

    Layers of different groups share buffers: the i-th layer of every group lies in buffer i, since a block belongs to
    one group at a time. With one group each layer has its own.

    Raises:
        AdapterError: layer names that cannot be read, or that do not cover the layers 0 to n-1 once each.
    """
    groups = config.kv_cache_groups
    layers: dict[int, LayerCache] = {}
    for number, group in enumerate(groups):
        specs = _by_layer(group)
        for place, (name, spec) in enumerate(specs.items()):
            index = layer_index(name)
            if index in layers:
                raise AdapterError(f"layer {index} is in the KV cache specification twice (tt-metal contract 1.3)")
            if not isinstance(spec, AttentionSpec):
                raise NotImplementedError(f"layer {name!r}: a KV cache of kind {type(spec).__name__} is not served")
            layers[index] = LayerCache(
                group=number,
                buffer=place if len(groups) > 1 else index,
                num_kv_heads=spec.num_kv_heads,
                block_size=spec.block_size,
                head_size=spec.head_size,
                dtype=spec.dtype,
                # A full-attention layer with a window only computes with one: its blocks are kept.
                window=spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None,
            )
    if len(layers) == 1 and len(groups) == 1:
        one = layers[0]
        # Recurrent layers have no keys and values.
        total = vllm_config.model_config.get_num_layers_by_block_type(vllm_config.parallel_config)
        layers = {index: one.in_buffer(index) for index in range(total)}
    missing = sorted(set(range(len(layers))) - set(layers))
    if missing:
        raise AdapterError(f"the KV cache specification has no layers {missing} (tt-metal contract 1.3)")
    return CacheLayout(config.num_blocks, tuple(layers[index] for index in range(len(layers))))


def _by_layer(group: Any) -> dict[str, KVCacheSpec]:
    spec = group.kv_cache_spec
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return {name: spec.kv_cache_specs[name] for name in group.layer_names}
    return {name: spec for name in group.layer_names}  # noqa: C420 - fromkeys loses the type
