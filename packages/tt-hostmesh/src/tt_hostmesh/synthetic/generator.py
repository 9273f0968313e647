"""`SyntheticForCausalLM` as the plugin registers it."""

from typing import Any

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.adapter.lanes import place
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.mesh import HostMesh
from tt_hostmesh.synthetic.compute import SyntheticCompute
from tt_hostmesh.synthetic.cost import CONFIG_KEY, DeviceCost


class SyntheticForCausalLM(HostGenerator):
    """A model without weights: sizes and step times come from the configuration, tokens from the cache's contents."""

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
    ) -> "SyntheticForCausalLM":
        """Nothing is loaded; the mesh simulates time from now on. Arguments as those of the Llama model.

        Raises ValueError for sizes and costs that make no sense, HostMeshError for the mesh.
        """
        if not isinstance(mesh_device, HostMesh):
            raise HostMeshError(f"{cls.__name__} runs on the software mesh only, got {type(mesh_device).__name__}")
        cost = DeviceCost.of(getattr(hf_config, CONFIG_KEY, None))
        placement = place(mesh_device, max_batch_size, max_seq_len, tt_data_parallel)
        mesh_device.simulate_time()
        heads = getattr(hf_config, "num_key_value_heads", None) or hf_config.num_attention_heads
        return cls(SyntheticCompute(hf_config.vocab_size, heads, cost, mesh_device.occupy), placement)
