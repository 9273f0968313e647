"""`LlamaForCausalLM` as the plugin registers it."""

import os
from collections.abc import Mapping
from typing import Any

import torch

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.adapter.lanes import Placement, place
from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.llama.config import LlamaConfig
from tt_hostmesh.llama.forward import LlamaCompute
from tt_hostmesh.llama.weights import load_weights
from tt_hostmesh.mesh import HostMesh

OPTIMIZATIONS = (None, "performance", "accuracy")


def device_threads(environ: Mapping[str, str] = os.environ) -> int | None:
    """TT_HOST_THREADS: CPU threads of the device, None = torch's own choice. Raises ValueError if not a number > 0."""
    value = environ.get("TT_HOST_THREADS", "").strip()
    if not value:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise ValueError(f"TT_HOST_THREADS={value!r} is not a number of threads above 0")
    return int(value)


def placed(model: str, mesh_device: Any, max_batch_size: int, max_seq_len: int, lanes: int) -> Placement:
    """Where a model sits on its mesh, whose thread gets the CPU threads that it may use.

    Raises HostMeshError for a mesh that is none, ValueError for rows or lanes that do not fit.
    """
    if not isinstance(mesh_device, HostMesh):
        raise HostMeshError(f"{model} runs on the software mesh only, got {type(mesh_device).__name__}")
    mesh: HostMesh = mesh_device
    threads = device_threads()
    placement = place(mesh, max_batch_size, max_seq_len, lanes)
    if threads:
        mesh.submit(lambda: torch.set_num_threads(threads), "set threads").wait()
    return placement


class LlamaForCausalLM(HostGenerator):
    """Llama checkpoints from a local Hugging Face directory, float32, any lane count the mesh allows."""

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
    ) -> "LlamaForCausalLM":
        """Load the checkpoint in `hf_config._name_or_path`.

        max_batch_size counts the rows of all `tt_data_parallel` lanes; `optimizations` is accepted and changes nothing.
        Raises ValueError, FileNotFoundError or KeyError for what cannot be loaded, HostMeshError for the mesh.
        """
        if optimizations not in OPTIMIZATIONS:
            raise ValueError(f"optimizations={optimizations!r} is unknown: allowed are None, 'performance', 'accuracy'")
        config = LlamaConfig.of(hf_config)
        placement = placed(cls.__name__, mesh_device, max_batch_size, max_seq_len, tt_data_parallel)
        weights = placement.mesh.submit(lambda: load_weights(hf_config._name_or_path, config), "load weights").result()
        return cls(LlamaCompute(config, weights, max_seq_len), placement)


class LegacyLlamaForCausalLM(LlamaForCausalLM):
    """The same model presenting itself with the legacy decode protocol (`reset_batch`)."""

    protocol = DecodeProtocol.LEGACY
