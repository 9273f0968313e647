"""RequestFacts from vLLM's processed inputs and parameters."""

from __future__ import annotations

from typing import Any

from tt_platform.admission import RequestFacts
from tt_platform.vllm._compat import prompt_parts


def request_facts(processed_inputs: Any, params: Any) -> RequestFacts:
    from vllm.pooling_params import PoolingParams  # not at the top: vLLM imports the platform while it imports itself

    parts = prompt_parts(processed_inputs)
    return RequestFacts(
        pooling=isinstance(params, PoolingParams),
        prompt_logprobs=getattr(params, "prompt_logprobs", None),
        prompt_embeds=any(part.get("type") == "embeds" or "prompt_embeds" in part for part in parts),
        media=frozenset(str(kind) for part in parts for kind in part.get("mm_kwargs") or ()),
    )
