"""One decode call, as its command finds it in the device thread."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tt_hostmesh.sampling import SamplingColumns


@dataclass(frozen=True, slots=True)
class DecodeCall:
    """Private copies of a call's inputs and its commands.

    tokens, start_pos: int64 [B]; page_table: int64 [B, W] or [layers, B, W], lane-local ids; sampled: tokens are
    wanted, not logits; sampling: the parameters, if this call brings them.
    The four reload commands are those of protocol v1, reset_batch that of the legacy one.
    """

    tokens: Tensor
    start_pos: Tensor
    page_table: Tensor
    traced: bool
    sampled: bool
    sampling: SamplingColumns | None = None
    prompt_tokens: Tensor | None = None
    output_tokens: Tensor | None = None
    slot_remap: Tensor | None = None
    reset_batch: bool = False
    reload_inputs: bool = False
    reload_page_table: bool = False
    reload_sampling_params: bool = False
    reset_sampling_state: bool = False
    rope_deltas: Tensor | None = None
    """int64 [rows up to the last live one]: what turns token positions into rotary positions from now on."""
    on_inputs: Callable[[Tensor, Tensor, Tensor], None] | None = None
    """Told in the device thread what the step computes with: rows, tokens, positions, int64 [n] each."""
