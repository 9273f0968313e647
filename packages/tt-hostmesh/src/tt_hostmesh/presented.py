"""The models with the face that TT_HOST_FACE names, default v1: what TT_MODEL_CLASS_OVERRIDES points to."""

import os

from tt_hostmesh.adapter.presentations import present
from tt_hostmesh.llama.generator import LlamaForCausalLM
from tt_hostmesh.synthetic.generator import SyntheticForCausalLM

_FACE = os.environ.get("TT_HOST_FACE", "").strip() or "v1"

Llama = present(LlamaForCausalLM, _FACE)
Synthetic = present(SyntheticForCausalLM, _FACE)

__all__ = ["Llama", "Synthetic"]
