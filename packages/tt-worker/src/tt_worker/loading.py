"""Make the model object out of its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tt_worker.methods import AdapterError, Method


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What a model class is told when it is loaded.

    hf_config:      the checkpoint's configuration
    rows:           B, requests in one decode call, all lanes together
    max_seq_len:    tokens of the longest request
    lanes:          groups that the rows are divided into
    optimizations:  "performance", "accuracy" or None
    engine_config:  the engine's whole configuration, for the few classes that ask for it
    Source: tt-metal contract 1.2.
    """

    hf_config: Any
    rows: int
    max_seq_len: int
    lanes: int
    optimizations: str | None
    engine_config: Any


def load(model_class: type, mesh: Any, request: LoadRequest) -> Any:
    """Call `initialize_vllm_model`; `vllm_config` goes only to classes that name it: others have closed signatures."""
    initialize = Method(model_class, "initialize_vllm_model", "1.2")
    keywords: dict[str, Any] = {
        "max_seq_len": request.max_seq_len,
        "tt_data_parallel": request.lanes,
        "optimizations": request.optimizations,
    }
    if initialize.names("vllm_config"):
        keywords["vllm_config"] = request.engine_config
    construct: Any = initialize.function
    model = construct(request.hf_config, mesh, request.rows, **keywords)
    if model is None:
        raise AdapterError(f"{initialize.label} returned None: tt-metal contract 1.2 wants the model object")
    sizes = getattr(model, "tt_supported_decode_batch_sizes", None)
    if sizes and request.lanes == 1 and request.rows not in sizes:
        raise AdapterError(
            f"{type(model).__name__}.tt_supported_decode_batch_sizes are {sorted(sizes)} and the batch has "
            f"{request.rows} rows: choose --max-num-seqs among them, or let the class declare them (contract 1.6)"
        )
    return model
