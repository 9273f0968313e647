"""Qwen 3-VL as tt-metal's class presents it, without what vLLM wants of it (see tt_hostmesh.vllm)."""

from tt_hostmesh.qwen2_5_vl.generator import Parts, SeeingGenerator
from tt_hostmesh.qwen3_vl.config import Qwen3VLConfig
from tt_hostmesh.qwen3_vl.forward import Qwen3VLCompute
from tt_hostmesh.qwen3_vl.weights import load_weights


class Qwen3VL(SeeingGenerator):
    """Qwen 3-VL."""

    parts = Parts(Qwen3VLConfig.of, load_weights, Qwen3VLCompute)
