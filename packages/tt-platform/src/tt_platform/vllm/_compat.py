"""What differs between vLLM releases, found by probing, each with the release that changed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm.exceptions import VLLMValidationError

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def v2_forcing_feature(vllm_config: VllmConfig) -> str | None:
    """The flag of a feature for which vLLM chooses its V2 model runner even against the environment variable.

    0.30 added watermarking and HiSparse; older releases have neither attribute.
    """
    if getattr(vllm_config, "watermark_config", None) is not None:
        return "--watermark-config"
    attention = getattr(vllm_config, "attention_config", None)
    if getattr(attention, "hisparse_config", None) is not None:
        return "--attention-config.hisparse_config"
    return None


def prompt_parts(processed_inputs: Any) -> list[Mapping[str, Any]]:
    """The prompt mappings of a request: itself, or encoder and decoder prompt of an encoder-decoder request."""
    if not isinstance(processed_inputs, Mapping):
        return []
    nested = [processed_inputs.get(key) for key in ("encoder_prompt", "decoder_prompt")]
    return [processed_inputs, *(part for part in nested if isinstance(part, Mapping))]


def request_error(message: str, parameter: str) -> Exception:
    """The error that the API server turns into HTTP 400 with the parameter's name. A ValueError before 0.33."""
    return VLLMValidationError(message, parameter=parameter)
