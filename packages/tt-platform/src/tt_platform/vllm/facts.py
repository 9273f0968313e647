"""ConfigFacts from vLLM's VllmConfig."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tt_platform.config_facts import ConfigFacts
from tt_platform.mesh import mesh_problem
from tt_platform.options import TTOptions
from tt_platform.rules.environment import V2_VARIABLE
from tt_platform.vllm._compat import v2_forcing_feature
from tt_platform.vllm.additional import BLOCK_OUTPUT, CLOSING_WINDOW, entries, lane_count
from tt_platform.vllm.device import DeviceCheck
from tt_platform.vllm.models import ServedModel
from tt_registry import bare_name

if TYPE_CHECKING:
    from vllm.config import ModelConfig, ParallelConfig, VllmConfig


def config_facts(vllm_config: VllmConfig, options: TTOptions, served: ServedModel, device: DeviceCheck) -> ConfigFacts:
    """All facts of one launch."""
    return ConfigFacts(
        runtime=device.runtime,
        environment_problem=mesh_problem(os.environ),
        device_problem=device.problem,
        fabric_names=device.fabric_names,
        v2_runner_variable=os.environ.get(V2_VARIABLE),
        v2_runner_forced_by=v2_forcing_feature(vllm_config),
        options=options,
        lora=vllm_config.lora_config is not None,
        speculative_method=_speculative_method(vllm_config),
        block_output=_mapping(entries(vllm_config).get(BLOCK_OUTPUT)),
        diffusion=getattr(vllm_config, "diffusion_config", None) is not None,
        rust_front_end=os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0"),
        any_whitespace=not vllm_config.structured_outputs_config.disable_any_whitespace,
        structured_backend=vllm_config.structured_outputs_config.backend,
        lanes=lane_count(vllm_config),
        shutdown_timeout=getattr(vllm_config, "shutdown_timeout", None),
        closing_window=bool(entries(vllm_config).get(CLOSING_WINDOW)),
        **_model_facts(vllm_config.model_config, served),
        **_capability_facts(served),
        batch_sizes=served.batch_sizes,
        **_parallel_facts(vllm_config.parallel_config),
        **_scheduling_facts(vllm_config),
    )


def _model_facts(model: ModelConfig | None, served: ServedModel) -> dict[str, Any]:
    if model is None:
        return {"architecture": None}
    resolution = served.resolution
    return {
        "architecture": bare_name((model.hf_config.architectures or [model.architecture])[0]),
        "model_type": str(getattr(model.hf_config, "model_type", "")),
        "model_class": resolution.target if resolution else "",
        "model_problem": served.problem,
        "runner_type": model.runner_type,
        "class_pools": served.pools,
        "encoder_decoder": model.is_encoder_decoder,
        "multimodal": model.is_multimodal_model,
        "class_multimodal": model.is_multimodal_model and bool(resolution and resolution.multimodal),
        "text_only": bool(model.multimodal_config and model.multimodal_config.language_model_only),
        "moe": model.is_moe or bool(resolution and resolution.moe),
        "max_model_len": model.max_model_len,
        "max_logprobs": model.max_logprobs,
        "prompt_embeds": model.enable_prompt_embeds,
        "logits_processors": bool(model.logits_processors),
        "data_parallel_kind": resolution.data_parallel if resolution else "standard",
    }


def _capability_facts(served: ServedModel) -> dict[str, Any]:
    declared = served.capabilities
    names = (
        "supports_prefix_caching",
        "supports_async_decode",
        "supports_sample_on_device",
        "supports_chunked_prefill",
        "supports_spec_decode",
        "output_tokens_per_step",
        "max_device_top_k",
    )
    return {
        **{name: getattr(declared, name) for name in names},
        "adaptive_blocks": declared.tt_adaptive_block_output,
        "unserved_blocks": tuple(name for name in _UNSERVED_BLOCKS if getattr(declared, name)),
        "block_max_prompt": declared.tt_adaptive_block_max_prompt_tokens,
        "block_extent": max(declared.tt_block_kv_extent_tokens, declared.tt_block_output_kv_lookahead_tokens),
        "missing_block_hooks": served.missing_hooks,
    }


_UNSERVED_BLOCKS = ("tt_adaptive_block_batched", "tt_adaptive_block_ragged", "tt_block_output_chunked_prefill")


def _mapping(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def _parallel_facts(parallel: ParallelConfig) -> dict[str, Any]:
    backend = parallel.distributed_executor_backend
    worker = parallel.worker_cls
    return {
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "context_parallel_size": max(parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size),
        "data_parallel_size": parallel.data_parallel_size,
        "nnodes": parallel.nnodes,
        "executor_backend": backend if isinstance(backend, str) or backend is None else qualified_name(backend),
        "worker_class": worker if isinstance(worker, str) else qualified_name(worker),
    }


def _scheduling_facts(vllm_config: VllmConfig) -> dict[str, Any]:
    scheduler, cache = vllm_config.scheduler_config, vllm_config.cache_config
    chosen = scheduler.scheduler_cls
    return {
        "scheduler_class": chosen if isinstance(chosen, str) or chosen is None else qualified_name(chosen),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_scheduled_tokens": scheduler.max_num_scheduled_tokens,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "chunked_prefill": bool(scheduler.enable_chunked_prefill),
        "chunked_multimodal": not scheduler.disable_chunked_mm_input,
        "encoder_room": min(scheduler.max_num_encoder_input_tokens, scheduler.encoder_cache_size),
        "async_scheduling": bool(scheduler.async_scheduling),
        "prefix_caching": bool(cache.enable_prefix_caching),
        "mamba_cache_mode": cache.mamba_cache_mode,
        "block_size": cache.block_size,
        "block_size_chosen": cache.user_specified_block_size,
    }


def _speculative_method(vllm_config: VllmConfig) -> str | None:
    speculative = vllm_config.speculative_config
    return None if speculative is None else str(speculative.method)


def qualified_name(obj: Any) -> str:
    """``module.Name`` of a class that was given instead of its name."""
    return f"{obj.__module__}.{obj.__qualname__}"
