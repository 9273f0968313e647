"""Qwen 2.5-VL as tt-metal's class presents it, without what vLLM wants of it (see tt_hostmesh.vllm)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.llama.generator import placed
from tt_hostmesh.qwen2_5_vl.config import Qwen25VLConfig
from tt_hostmesh.qwen2_5_vl.forward import Qwen25VLCompute, SeeingCompute
from tt_hostmesh.qwen2_5_vl.weights import load_weights


@dataclass(frozen=True, slots=True)
class Parts:
    """What a model is made of: a transformers configuration -> its sizes; a directory and the sizes -> its weights;
    these and the longest sequence -> what computes."""

    config: Callable[[Any], Any]
    weights: Callable[[str, Any], Any]
    compute: Callable[[Any, Any, int], SeeingCompute]


class SeeingGenerator(HostGenerator):
    """Checkpoints from a local Hugging Face directory, float32, text and images.

    More than tt-metal's class can: it takes chunks, cached prefixes, images in both, and lanes.
    """

    parts: Parts

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
    ) -> "SeeingGenerator":
        """Load the checkpoint in `hf_config._name_or_path`. Arguments and errors as those of the Llama model, and
        ValueError for any `optimizations`, as tt-metal's class has it."""
        if optimizations is not None:
            raise ValueError(f"optimizations={optimizations!r} is not known to {cls.__name__}: leave it unset")
        parts = cls.parts
        config = parts.config(hf_config)
        placement = placed(cls.__name__, mesh_device, max_batch_size, max_seq_len, tt_data_parallel)
        weights = placement.mesh.submit(lambda: parts.weights(hf_config._name_or_path, config), "load weights").result()
        return cls(parts.compute(config, weights, max_seq_len), placement)


class Qwen25VL(SeeingGenerator):
    """Qwen 2.5-VL."""

    parts = Parts(Qwen25VLConfig.of, load_weights, Qwen25VLCompute)
