"""The face of a model whose layers differ: it says what each keeps, and allocates layer by layer."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from tt_hostmesh.adapter.compute import KVLayout
from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.layers.compute import Decoder, LayeredCompute
from tt_hostmesh.layers.kept import Kept, kept_by_layer
from tt_hostmesh.llama.generator import placed
from tt_hostmesh.llama.weights import Checkpoint


class LayeredGenerator(HostGenerator):
    """A HostGenerator over a `Decoder`. Source: tt-metal contract 1.3, 1.5."""

    _HYBRID_KV_CACHE_GROUPS_ENABLED: ClassVar[bool] = True
    top_logprobs: ClassVar[int] = 0
    all_positions: ClassVar[bool] = False

    @classmethod
    def decoder(cls, config: Any, source: Checkpoint, max_seq_len: int) -> Decoder:
        """The model of a transformers text configuration. Raises ValueError for what it cannot do, KeyError for a
        tensor that the checkpoint lacks."""
        raise NotImplementedError

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int = 1,
        optimizations: str | None = None,
    ) -> "LayeredGenerator":
        """Load the checkpoint in `hf_config._name_or_path`. Arguments and errors as those of the Llama model, and
        ValueError for any `optimizations`, as tt-metal's classes of these families have it."""
        if optimizations is not None:
            raise ValueError(f"optimizations={optimizations!r} is not known to {cls.__name__}: leave it unset")
        placement = placed(cls.__name__, mesh_device, max_batch_size, max_seq_len, tt_data_parallel)
        directory = hf_config._name_or_path
        load = placement.mesh.submit(lambda: cls.compute(hf_config, Checkpoint(directory), max_seq_len), "load weights")
        return cls(load.result(), placement)

    @classmethod
    def compute(cls, hf_config: Any, source: Checkpoint, max_seq_len: int) -> LayeredCompute:
        """The model of a transformers configuration; errors as those of `decoder`."""
        decoder = cls.decoder(hf_config.get_text_config(), source, max_seq_len)
        return LayeredCompute(decoder, top_logprobs=cls.top_logprobs, all_positions=cls.all_positions)

    @classmethod
    def get_kv_cache_spec(cls, vllm_config: Any) -> dict[str, Any] | None:
        """vLLM's specification of each layer's cache, by layer name: sliding windows where a layer has one."""
        from tt_hostmesh.vllm.kv_spec import layer_specs

        return layer_specs(vllm_config, cls.kept(vllm_config.model_config.hf_text_config))

    @classmethod
    def kept(cls, config: Any) -> list[Kept]:
        """What each layer of a transformers text configuration keeps."""
        return kept_by_layer(config)

    def allocate_kv_cache_per_layer(self, layers: Sequence[tuple[Sequence[int], torch.dtype, int]]) -> list[object]:
        """One cache a lane; the caller hands the list back with every call.

        layers: for each, (num_blocks, kv heads of one device, block_size, head_size), dtype, and the number of its
                buffer; layers with the same number share one
        Raises ValueError when heads do not fit the lane's devices, or layers differ in blocks.
        """
        self._require_usable("allocate_kv_cache_per_layer")
        pools = {(shape[0], shape[2]) for shape, _, _ in layers}
        if len(pools) != 1:
            raise ValueError(f"layers have different numbers or sizes of blocks: {sorted(pools)}")
        for (shape, _, _), heads in zip(layers, self._device.kv_heads, strict=True):
            self._require_heads(shape, heads)
        ((num_blocks, block_size),) = pools
        buffers = [buffer for _, _, buffer in layers]
        layout = KVLayout(self._placement.lanes, num_blocks, block_size)
        self._kv_cache = self._a_cache_each_lane(self._device.allocate_layers(layout, buffers))
        if self._checker:
            self._checker.allocated(num_blocks, block_size, self._kv_cache, buffers, self._device.windows)
        return self._kv_cache
