"""Qwen 3.5 as the plugin registers it."""

from typing import Any, ClassVar

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.adapter.lanes import place
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.llama.generator import OPTIMIZATIONS
from tt_hostmesh.mesh import HostMesh
from tt_hostmesh.qwen3_5.config import Qwen35Config
from tt_hostmesh.qwen3_5.forward import Qwen35Compute
from tt_hostmesh.qwen3_5.weights import load_weights


class Qwen35ForCausalLM(HostGenerator):
    """Text checkpoints from a local Hugging Face directory, float32.

    A slot's state goes forward only. So a prefill starts at 0 or where the slot stands, to the token: the class says so
    with an alignment of 1, and it knows no cached prefix.
    """

    is_hybrid = True  # vLLM's mark of recurrent layers beside attention
    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_chunked_prefill": True,
        "chunked_prefill_token_alignment": 1,
        "max_device_top_k": 32,
    }

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
    ) -> "Qwen35ForCausalLM":
        """Load the checkpoint in `hf_config._name_or_path`. Arguments and errors as those of the Llama model."""
        if optimizations not in OPTIMIZATIONS:
            raise ValueError(f"optimizations={optimizations!r} is unknown: allowed are None, 'performance', 'accuracy'")
        if not isinstance(mesh_device, HostMesh):
            raise HostMeshError(f"{cls.__name__} runs on the software mesh only, got {type(mesh_device).__name__}")
        config = Qwen35Config.of(hf_config)
        placement = place(mesh_device, max_batch_size, max_seq_len, tt_data_parallel)
        weights = mesh_device.submit(lambda: load_weights(hf_config._name_or_path, config), "load weights").result()
        return cls(Qwen35Compute(config, weights, max_seq_len, max_batch_size), placement)
