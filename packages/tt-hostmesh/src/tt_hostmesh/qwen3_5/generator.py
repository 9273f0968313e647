"""Qwen 3.5 as the plugin registers it."""

from typing import Any, ClassVar

import torch

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.adapter.lanes import place
from tt_hostmesh.errors import ContractError, HostMeshError
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


class Qwen35ForConditionalGeneration(Qwen35ForCausalLM):
    """The same for checkpoints with a vision tower, which is left alone: text only, with rotary deltas of 0.

    So is tt-metal's class for batches: in three axes or in one, text has the same positions (tt-metal contract 2).
    """

    def prefill_forward(self, *args: Any, **keywords: Any) -> Any:
        """That of HostGenerator, and deltas int64 [n, 1] behind it."""
        out = super().prefill_forward(*args, **keywords)
        return out, torch.zeros(len(keywords["prompt_lens"]), 1, dtype=torch.int64)

    def decode_forward(self, *args: Any, rope_deltas_all_users: list[int] | None = None, **keywords: Any) -> Any:
        """That of HostGenerator. Raises ContractError for a delta that no prefill of this model gave."""
        if any(rope_deltas_all_users or ()):
            raise ContractError(
                f"{type(self).__name__}.decode_forward",
                "1.6",
                f"rope_deltas_all_users {rope_deltas_all_users} are not 0",
            )
        return super().decode_forward(*args, **keywords)
