"""TTPlatform: what vLLM asks of a platform, answered for Tenstorrent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from vllm.platforms.interface import Platform, PlatformEnum

from tt_platform.admission import refuse_request
from tt_platform.options import TTOptions
from tt_platform.presence import GIVEN_BACK
from tt_platform.rules import settle
from tt_platform.vllm._compat import request_error
from tt_platform.vllm.activate import pin_v1_runner
from tt_platform.vllm.additional import block_launch, pools
from tt_platform.vllm.apply import apply_changes, log_findings, prefix_architectures
from tt_platform.vllm.device import check_device
from tt_platform.vllm.facts import config_facts
from tt_platform.vllm.models import ServedModel, register_architectures, register_early, served_model
from tt_platform.vllm.ranks import resolve_rank_groups
from tt_platform.vllm.requests import request_facts

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class TTPlatform(Platform):
    """The Tenstorrent platform. Tensors of vLLM stay on the host; the mesh is the model's."""

    _enum = PlatformEnum.OOT
    device_name = "tt"
    device_type = "tt"
    device_control_env_var = "TT_VISIBLE_DEVICES"
    simple_compile_backend = "eager"
    dist_backend = "gloo"

    _launch: ClassVar[VllmConfig | None] = None
    """The last configuration of this process: vLLM tells nothing of it when it asks about a request, and fits
    `--max-model-len -1` in it later."""

    @classmethod
    def pre_register_and_update(cls, parser: Any = None) -> None:
        """Runs before arguments are parsed and before a configuration is built."""
        GIVEN_BACK.clear()
        pin_v1_runner(os.environ)
        register_early()

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Refuse what cannot work and settle the rest. May run again on its own result, which it leaves as it is.

        Raises:
            ValueError: one line for the operator.
        """
        options = TTOptions.of(vllm_config.additional_config)
        model = vllm_config.model_config
        served = ServedModel()
        if model is not None:
            register_architectures()
            served = served_model(list(model.hf_config.architectures or []), test_models=options.register_test_models)
        settled = settle(config_facts(vllm_config, options, served, check_device(vllm_config)))
        log_findings(settled.findings)
        apply_changes(vllm_config, settled.changes)
        cls._launch = vllm_config
        prefix_architectures(vllm_config)
        resolve_rank_groups(vllm_config)

    @classmethod
    def device_id_to_physical_device_id(cls, device_id: int) -> int:
        """A rank, not a chip: how many chips a rank has is known to the stored groups, which the worker binds."""
        return device_id

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Refuse one request.

        Raises:
            ValueError: vLLM answers HTTP 400 with the parameter's name; the engine is not touched.
        """
        blocks = None if cls._launch is None else block_launch(cls._launch)
        refusal = refuse_request(request_facts(processed_inputs, params), blocks, pools=pools(cls._launch))
        if refusal is not None:
            raise request_error(refusal.message, refusal.parameter)

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: VllmConfig) -> None:
        """The block size was settled with the configuration; no attention backend of vLLM has a say in it."""

    @classmethod
    def import_kernels(cls) -> None:
        """vLLM's own kernels are not used."""

    @classmethod
    def inference_mode(cls) -> Any:
        """``no_grad``: tt-metal's models write into tensors, which ``inference_mode`` would forbid later."""
        return torch.no_grad()

    @classmethod
    def set_device(cls, device: Any) -> None:
        """The worker opens the mesh itself. vLLM calls this in threads that only copy host tensors."""

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        torch.manual_seed(seed)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "tt"

    @classmethod
    def is_async_output_supported(cls, enforce_eager: bool | None) -> bool:
        return True

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """The KV cache belongs to the model; layers that share an index do not collide."""

    def is_cpu(self) -> bool:
        """False while there is a device; True once the engine of this process has closed it.

        The last step of vLLM's shutdown empties the caches of torch's accelerator unless the platform is a CPU. torch
        has no accelerator here, so that step would raise and print an error after every clean end. At that moment the
        host is all that is left.
        """
        return GIVEN_BACK.is_set()

    def uses_host_device_handling(self) -> bool:
        """torch has no device named tt, so vLLM leaves DeviceConfig.device unset."""
        return True
