"""Carry the changes of settled facts over into vLLM's VllmConfig."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tt_platform.findings import Finding
from tt_platform.vllm.additional import BLOCK_OUTPUT, CLOSING_WINDOW, LANES, put
from tt_registry import tt_name

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.tt.platform")


def apply_changes(vllm_config: VllmConfig, changes: Mapping[str, object]) -> None:
    """Set what each changed field of ConfigFacts stands for."""
    for name, value in changes.items():
        _SETTERS[name](vllm_config, value)


def log_findings(findings: tuple[Finding, ...]) -> None:
    """One line a finding."""
    for finding in findings:
        logger.log(logging.WARNING if finding.warn else logging.INFO, "%s", finding.message)


def prefix_architectures(vllm_config: VllmConfig) -> None:
    """Put TT before the checkpoint's architectures, in place, as tt-metal's registry names them. Twice is once."""
    if vllm_config.model_config is not None:
        hf_config = vllm_config.model_config.hf_config
        hf_config.architectures = [tt_name(name) for name in hf_config.architectures or []]


def _field(section: str, attribute: str, *, inverted: bool = False) -> Callable[[VllmConfig, Any], None]:
    def set_field(vllm_config: VllmConfig, value: Any) -> None:
        setattr(getattr(vllm_config, section), attribute, not value if inverted else value)

    return set_field


def _set_mamba_cache_mode(vllm_config: VllmConfig, value: Any) -> None:
    cache = vllm_config.cache_config
    cache.mamba_cache_mode = value
    cache.mamba_block_size = vllm_config.model_config.max_model_len


def _set_any_whitespace(vllm_config: VllmConfig, value: Any) -> None:
    """On a copy: the section belongs to the engine's arguments, which vLLM hands to its API servers and checks there.

    That check knows the flag for named backends only, though the default, auto, chooses one of them for each request.
    """
    section = copy.copy(vllm_config.structured_outputs_config)
    section.disable_any_whitespace = not value
    vllm_config.structured_outputs_config = section


def _set_text_only(vllm_config: VllmConfig, value: Any) -> None:
    """vLLM counts every kind of media of a request against a limit of 0, and answers HTTP 400."""
    multimodal = vllm_config.model_config.multimodal_config
    if multimodal is not None:
        multimodal.language_model_only = value


def _set_encoder_room(vllm_config: VllmConfig, value: Any) -> None:
    scheduler = vllm_config.scheduler_config
    scheduler.max_num_encoder_input_tokens = scheduler.encoder_cache_size = value


def _set_lanes(vllm_config: VllmConfig, value: Any) -> None:
    put(vllm_config, LANES, value)


def _set_data_parallel_size(vllm_config: VllmConfig, value: Any) -> None:
    """One engine: everything that vLLM derived from the former size goes with it."""
    parallel = vllm_config.parallel_config
    parallel.data_parallel_size = value
    parallel.data_parallel_size_local = value
    parallel.data_parallel_rank = 0
    parallel.data_parallel_rank_local = None
    parallel.data_parallel_external_lb = False
    parallel.data_parallel_hybrid_lb = False
    parallel.data_parallel_index = 0


_SETTERS: Mapping[str, Callable[[Any, Any], None]] = {
    "worker_class": _field("parallel_config", "worker_cls"),
    "data_parallel_size": _set_data_parallel_size,
    "executor_backend": _field("parallel_config", "distributed_executor_backend"),
    "lanes": _set_lanes,
    "block_output": lambda vllm_config, value: put(vllm_config, BLOCK_OUTPUT, value),
    "scheduler_class": _field("scheduler_config", "scheduler_cls"),
    "max_num_seqs": _field("scheduler_config", "max_num_seqs"),
    "max_num_batched_tokens": _field("scheduler_config", "max_num_batched_tokens"),
    "max_num_scheduled_tokens": _field("scheduler_config", "max_num_scheduled_tokens"),
    "long_prefill_token_threshold": _field("scheduler_config", "long_prefill_token_threshold"),
    "chunked_prefill": _field("scheduler_config", "enable_chunked_prefill"),
    "chunked_multimodal": _field("scheduler_config", "disable_chunked_mm_input", inverted=True),
    "encoder_room": _set_encoder_room,
    "async_scheduling": _field("scheduler_config", "async_scheduling"),
    "prefix_caching": _field("cache_config", "enable_prefix_caching"),
    "mamba_cache_mode": _set_mamba_cache_mode,
    "block_size": _field("cache_config", "block_size"),
    "text_only": _set_text_only,
    "max_logprobs": _field("model_config", "max_logprobs"),
    "shutdown_timeout": lambda vllm_config, value: setattr(vllm_config, "shutdown_timeout", value),
    "closing_window": lambda vllm_config, value: put(vllm_config, CLOSING_WINDOW, value),
    "any_whitespace": _set_any_whitespace,
}
