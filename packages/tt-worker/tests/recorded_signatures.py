"""Signatures of tt-metal's adapter classes, as recorded in the contract: data, no behaviour.

A signature is written as it stands behind `def name`, without self. Where the record says only "takes **kwargs", the
keywords that every class has are named. What the record does not have is left out: the whole of Mllama's closed calls,
and calls that we never make.
"""

from __future__ import annotations

from dataclasses import dataclass, field

COMMON_DECODE = "tokens, start_pos, page_table=None, kv_cache=None, enable_trace=True, read_from_device=True"
COMMON_PREFILL = "tokens, page_table=None, kv_cache=None, prompt_lens=None, enable_trace=True"
SIZES = "hf_config, mesh_device, max_batch_size, max_seq_len"
WARM_PREFILL = "kv_cache, enable_trace, can_sample_on_device"
WARM_DECODE = "kv_cache, enable_trace, max_batch_size, num_blocks, can_sample_on_device"
BUDGET = "*, model_name, num_devices, tt_data_parallel, max_model_len, max_num_seqs"
RELOAD = "reload_inputs, reload_page_table, reload_sampling_params, reset_sampling_state"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One family of classes.

    contract:  its `decode_input_update_contract`; 0 = legacy
    source:    sections of the tt-metal contract
    methods:   signature of each method, beyond or instead of BASE
    groups:    KV cache groups its models have
    images:    the class takes images
    mrope:     rotary positions in three axes: a prefill answers with deltas, a decode takes them
    """

    source: str
    methods: dict[str, str] = field(default_factory=dict[str, str])
    contract: int = 0
    groups: int = 1
    images: bool = False
    mrope: bool = False


BASE = {
    "initialize_vllm_model": f"{SIZES}, tt_data_parallel=1, optimizations=None",
    "get_max_tokens_all_users": BUDGET,
    "allocate_kv_cache": "kv_cache_shape, dtype, num_layers",
    "prefill_forward": "*args, **kwargs",
    "decode_forward": "*args, **kwargs",
    "read_decode_output": "tt_out, async_read=False",
    "process_decode_output_host": "tt_out, is_tokens=True",
    "warmup_model_prefill": WARM_PREFILL,
    "warmup_model_decode": WARM_DECODE,
}

FAMILIES = {
    "text, June 2026": Recorded(
        "1.2, 1.9, 7: closed loading and warm-up, open steps",
        {"initialize_vllm_model": f'{SIZES}, n_layers=None, tt_data_parallel=1, optimizations="performance"'},
    ),
    "text, October 2026": Recorded(
        "1.2, 1.6: decode contract v1",
        {"initialize_vllm_model": f'{SIZES}, n_layers=None, tt_data_parallel=1, optimizations="performance"'},
        contract=1,
    ),
    "Galaxy": Recorded(
        "1.7, 1.9: decode without **kwargs, read-back asynchronous unless told otherwise",
        {
            "prefill_forward": f"{COMMON_PREFILL}, sampling_params=None, start_pos=None, empty_slots=None",
            "decode_forward": f"{COMMON_DECODE}, async_read=True, sampling_params=None, reset_inputs=False, "
            "reset_batch=False, prompt_tokens=None, output_tokens=None, slot_remap=None",
            "read_decode_output": "tt_out, async_read=True",
        },
    ),
    "DeepSeek-V3": Recorded(
        "1.5, 1.9",
        {
            "prefill_forward": f"{COMMON_PREFILL}, start_pos=None, **kwargs",
            "decode_forward": f"{COMMON_DECODE}, sampling_params=None, **kwargs",
            "get_max_tokens_all_users": f"{BUDGET}, **kwargs",
        },
    ),
    "Qwen2.5-VL": Recorded(
        "1.2, 1.9",
        {
            "prefill_forward": f"{COMMON_PREFILL}, **kwargs",
            "decode_forward": f"{COMMON_DECODE}, sampling_params=None, reset_batch=False, **kwargs",
        },
        images=True,
        mrope=True,
    ),
    "Qwen3-VL": Recorded(
        "1.2, 1.9",
        {
            "prefill_forward": f"{COMMON_PREFILL}, **kwargs",
            "decode_forward": f"{COMMON_DECODE}, sampling_params=None, reset_batch=False, **kwargs",
        },
        images=True,
        mrope=True,
    ),
    "Gemma3": Recorded("1.2, 1.9: what it does not know goes on to its model", images=True),
    "Mistral3": Recorded(
        "1.5: takes and ignores start_pos, empty_slots and sampling_params; reads images, not pixel_values",
        {"prefill_forward": f"{COMMON_PREFILL}, images=None, **kwargs"},
        images=True,
    ),
    "Qwen3.6": Recorded(
        "1.2, 1.5, 1.9: stateful",
        {
            "initialize_vllm_model": f"{SIZES}, tt_data_parallel=1, optimizations=None, **kwargs",
            "prefill_forward": f"{COMMON_PREFILL}, empty_slots=None, pixel_values=None, **kwargs",
            "decode_forward": f"{COMMON_DECODE}, **kwargs",
            "release_request": "slot",
            "note_state_slots_moved": "moves",
        },
        contract=1,
        images=True,
        mrope=True,
    ),
    "resident Qwen3.6": Recorded(
        "1.6, 1.12: all four reload commands always, never reset_batch",
        {
            "decode_forward": f"*, tokens, start_pos, page_table, kv_cache, enable_trace, read_from_device, {RELOAD}, "
            "sampling_params=None, prompt_tokens=None, output_tokens=None, slot_remap=None",
            "release_request": "slot",
            "release_persistent_capture": "",
        },
        contract=1,
    ),
    "Gemma4": Recorded(
        "1.3, 1.5, 1.6: several KV cache groups",
        {
            "allocate_kv_cache_per_layer": "specs",
            "prefill_forward": f"{COMMON_PREFILL}, page_tables_per_layer=None, **kwargs",
            "decode_forward": f"{COMMON_DECODE}, page_tables_per_layer=None, **kwargs",
            "release_request": "slot",
        },
        contract=1,
        groups=2,
    ),
    "newest loading and warm-up": Recorded(
        "1.2, 1.4",
        {
            "initialize_vllm_model": f"{SIZES}, tt_data_parallel=1, optimizations=None, vllm_config=None",
            "warmup_model_decode": f"{WARM_DECODE}, can_sample_device_grammar=False, read_from_device=True, "
            "greedy_only=False",
        },
        contract=1,
    ),
    "test models": Recorded(
        "1.2, 1.4",
        {
            "initialize_vllm_model": "hf_config, mesh_device, max_batch_size, **kwargs",
            "prefill_forward": "tokens, **kwargs",
            "decode_forward": "tokens, **kwargs",
        },
    ),
}
"""By name, the signatures that a family is known to have."""


def signatures(family: str) -> dict[str, str]:
    """Method -> signature of a family."""
    return {**BASE, **FAMILIES[family].methods}
