"""RequestFacts from vLLM's processed inputs and parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

from tt_platform.admission import AROUND, SAMPLED, UNKNOWN_TO_BLOCKS, RequestFacts
from tt_platform.vllm._compat import prompt_parts


def request_facts(processed_inputs: Any, params: Any) -> RequestFacts:
    # Not at the top: vLLM imports the platform while it imports itself.
    from vllm.pooling_params import PoolingParams
    from vllm.sampling_params import SamplingParams

    parts = prompt_parts(processed_inputs)
    return RequestFacts(
        pooling=isinstance(params, PoolingParams),
        task=getattr(params, "task", None),
        unserved=tuple(unserved(params)) if isinstance(params, SamplingParams) else (),
        prompt_embeds=any(part.get("type") == "embeds" or "prompt_embeds" in part for part in parts),
        media=frozenset(str(kind) for part in parts for kind in part.get("mm_kwargs") or ()),
        prompt_tokens=max((len(part.get("prompt_token_ids") or ()) for part in parts), default=0),
        max_tokens=getattr(params, "max_tokens", None),
        chosen=tuple(chosen(params)) if isinstance(params, SamplingParams) else (),
    )


def chosen(params: Any) -> list[tuple[str, object]]:
    """The parameters that differ from their default and mean nothing to blocks, with their values."""
    plain = type(params)()
    values = ((name, getattr(params, name, None)) for name in sorted(UNKNOWN_TO_BLOCKS))
    return [(name, value) for name, value in values if value is not None and value != getattr(plain, name, None)]


def unserved(params: Any) -> list[tuple[str, object]]:
    """The parameters that were set and that nobody gives an effect: refused ones, and any that a release adds."""
    found: list[tuple[str, object]] = []
    for name, default in _defaults(type(params)):
        value = getattr(params, name)
        # False switches off what is off here anyway.
        if value is None or value is False or (not hasattr(value, "__array__") and value == default):
            continue
        found.append((name, value))
    return found


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, object], ...]:
    """Name and default of each parameter that nobody gives an effect."""
    plain = kind()
    return tuple((name, getattr(plain, name)) for name in kind.__struct_fields__ if name not in SAMPLED | AROUND)
