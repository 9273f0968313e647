"""Qwen 3-VL as tt-metal's class presents it, without what vLLM wants of it (see tt_hostmesh.vllm)."""

from typing import Any

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.llama.generator import placed
from tt_hostmesh.qwen3_vl.config import Qwen3VLConfig
from tt_hostmesh.qwen3_vl.forward import Qwen3VLCompute
from tt_hostmesh.qwen3_vl.weights import load_weights


class Qwen3VL(HostGenerator):
    """Checkpoints from a local Hugging Face directory, float32, text and images.

    More than tt-metal's class can: it takes chunks, cached prefixes, images in both, and lanes.
    """

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
    ) -> "Qwen3VL":
        """Load the checkpoint in `hf_config._name_or_path`. Arguments and errors as those of the Llama model, and
        ValueError for any `optimizations`, as tt-metal's class has it."""
        if optimizations is not None:
            raise ValueError(f"optimizations={optimizations!r} is not known to {cls.__name__}: leave it unset")
        config = Qwen3VLConfig.of(hf_config)
        placement = placed(cls.__name__, mesh_device, max_batch_size, max_seq_len, tt_data_parallel)
        weights = placement.mesh.submit(lambda: load_weights(hf_config._name_or_path, config), "load weights").result()
        return cls(Qwen3VLCompute(config, weights, max_seq_len), placement)
