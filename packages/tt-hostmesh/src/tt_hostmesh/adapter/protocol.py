"""The two decode protocols: what of a call's inputs reaches the device."""

import os
from collections.abc import Mapping
from enum import Enum

import torch

from tt_hostmesh.adapter.decode import DecodeCall
from tt_hostmesh.adapter.resident import Resident
from tt_hostmesh.sampling import TokenCounts


class DecodeProtocol(Enum):
    """v1: four reload commands (`decode_input_update_contract` = 1). legacy: `reset_batch` (no such attribute)."""

    V1 = "v1"
    LEGACY = "legacy"

    @staticmethod
    def chosen(environ: Mapping[str, str] = os.environ) -> "DecodeProtocol":
        """That of TT_HOST_PROTOCOL, default v1. Raises ValueError for an unknown name."""
        name = environ.get("TT_HOST_PROTOCOL", "").strip() or "v1"
        for protocol in DecodeProtocol:
            if protocol.value == name:
                return protocol
        raise ValueError(f"TT_HOST_PROTOCOL={name!r} is unknown: allowed are v1, legacy")


def stage(protocol: DecodeProtocol, state: Resident, call: DecodeCall, vocab_size: int) -> None:
    """Bring the device's state up to date for this step, as the protocol says. Runs in the device thread."""
    if call.slot_remap is not None:
        state.permute(call.slot_remap)
    if protocol is DecodeProtocol.V1:
        _stage_v1(state, call, vocab_size)
    else:
        _stage_legacy(state, call, vocab_size)


def _stage_v1(state: Resident, call: DecodeCall, vocab_size: int) -> None:
    """Nothing of the call is looked at unless a command says so (contract 1.6)."""
    if call.reload_inputs:
        state.load(call.tokens, call.start_pos, call.page_table)
    elif call.reload_page_table:
        state.page_table = call.page_table
    if call.reload_sampling_params:
        state.sampling = None if call.sampling is None else call.sampling.table()
    if call.reset_sampling_state:
        state.counts = _fresh_counts(state, call, vocab_size)


def _stage_legacy(state: Resident, call: DecodeCall, vocab_size: int) -> None:
    """Inputs are loaded when untraced, when the host samples or on reset; the page table when it differs (contract 7).

    On reset a row whose device position is the host's or one ahead keeps its device token and position: the host may
    be one step behind.
    """
    if not call.traced or not call.sampled or not state.tokens_valid:
        state.load(call.tokens, call.start_pos, call.page_table)
    elif call.reset_batch:
        ahead = state.positions - call.start_pos
        keep = (call.start_pos >= 0) & ((ahead == 0) | (ahead == 1))
        tokens = torch.where(keep, state.tokens, call.tokens)
        positions = torch.where(keep, state.positions, call.start_pos)
        state.load(tokens, positions, call.page_table)
    else:
        state.page_table = call.page_table
    if call.sampling is not None:
        state.sampling = call.sampling.table()
        if call.reset_batch:
            state.counts = _fresh_counts(state, call, vocab_size)


def _fresh_counts(state: Resident, call: DecodeCall, vocab_size: int) -> TokenCounts | None:
    live = (state.positions >= 0).nonzero()[:, 0]
    if state.sampling is None or not state.sampling.take(live).penalised:
        return None
    if call.prompt_tokens is None:
        raise ValueError("a penalty is active on the device but the call has no prompt_tokens (tt-metal contract 1.6)")
    return TokenCounts.of(call.prompt_tokens, call.output_tokens, vocab_size)
