"""The keywords of the two step calls as the caller gave them, and their way into commands for the device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import PrefillRow
from tt_hostmesh.adapter.decode import DecodeCall
from tt_hostmesh.adapter.device import PrefillCall
from tt_hostmesh.adapter.images import ImageArguments
from tt_hostmesh.sampling import SamplingColumns


@dataclass(frozen=True, slots=True)
class PrefillArguments:
    """Keywords of prefill_forward (contract 1.5); `unknown`: those it has no name for; `images`: if the model sees;
    `layers`: those that have a page table of their own."""

    tokens: Any
    page_table: Any
    kv_cache: object
    prompt_lens: Any
    enable_trace: Any
    start_pos: Any
    empty_slots: Any
    sampling_params: Any
    unknown: Mapping[str, object]
    images: ImageArguments | None = None
    page_tables_per_layer: Any = None
    layers: int = 0

    def call(self, offsets: Tensor) -> PrefillCall:
        """For the device; `offsets` int64 [B, 1] turn lane-local block ids into pool ids."""
        ends = _ints(self.prompt_lens)
        starts = [0] * len(ends) if self.start_pos is None else _ints(self.start_pos)
        slots = list(range(len(ends))) if self.empty_slots is None else _ints(self.empty_slots)
        images = [()] * len(ends) if self.images is None else self.images.rows(len(ends))
        rows = [
            PrefillRow(self.tokens[i, :end].long(), start, self._blocks(i) + offsets[slot], slot, images[i])
            for i, (end, start, slot) in enumerate(zip(ends, starts, slots, strict=True))
        ]
        sampling = None if self.sampling_params is None else SamplingColumns.of(self.sampling_params, len(rows))
        return PrefillCall(rows, slots, sampling)

    def _blocks(self, row: int) -> Tensor:
        """int64 [W], or [layers, W] of a model whose layers have page tables of their own."""
        if self.page_tables_per_layer is not None:
            return torch.stack([table[row] for table in self.page_tables_per_layer]).long()
        blocks = self.page_table[row].long()
        return blocks.expand(self.layers, -1) if self.layers else blocks

    def overwrite_beyond_ends(self) -> None:
        """Write into cells past each row's end, as some adapters do with their padding."""
        for row, end in enumerate(_ints(self.prompt_lens)):
            self.tokens[row, end:] = -1


@dataclass(frozen=True, slots=True)
class DecodeArguments:
    """Keywords of decode_forward (contract 1.6); None = not sent; `unknown`: those it has no name for; `rope_deltas`:
    rope_deltas_all_users, of a model with rotary positions in three axes; `layers`: as for a prefill."""

    tokens: Any
    start_pos: Any
    page_table: Any
    kv_cache: object
    enable_trace: Any
    read_from_device: Any
    sampling_params: Any
    prompt_tokens: Any
    output_tokens: Any
    slot_remap: Any
    reset_batch: Any
    reload_inputs: Any
    reload_page_table: Any
    reload_sampling_params: Any
    reset_sampling_state: Any
    unknown: Mapping[str, object]
    rope_deltas: Any = None
    page_tables_per_layer: Any = None
    layers: int = 0

    @property
    def sampled(self) -> bool:
        """Whether tokens are wanted, not logits."""
        return self.sampling_params is not None

    def call(
        self, sampling: SamplingColumns | None, on_inputs: Callable[[Tensor, Tensor, Tensor], None] | None
    ) -> DecodeCall:
        """For the device. What it looks at is copied: the caller may reuse its buffers before then.

        Histories count when the sampler's state is reset, in no other step.
        """
        reset = bool(self.reset_batch or self.reset_sampling_state)
        return DecodeCall(
            tokens=_copy(self.tokens[:, 0]),
            start_pos=_copy(self.start_pos),
            page_table=_copy(self._table()),
            traced=bool(self.enable_trace),
            sampled=self.sampled,
            sampling=sampling,
            prompt_tokens=_copy(self.prompt_tokens) if reset and self.prompt_tokens is not None else None,
            output_tokens=_copy(self.output_tokens) if reset and self.output_tokens is not None else None,
            slot_remap=None if self.slot_remap is None else _copy(self.slot_remap),
            reset_batch=bool(self.reset_batch),
            reload_inputs=bool(self.reload_inputs),
            reload_page_table=bool(self.reload_page_table),
            reload_sampling_params=bool(self.reload_sampling_params),
            reset_sampling_state=bool(self.reset_sampling_state),
            rope_deltas=None if self.rope_deltas is None else torch.tensor(self.rope_deltas, dtype=torch.int64),
            on_inputs=on_inputs,
        )

    def _table(self) -> Tensor:
        """int32 [B, W], or [layers, B, W] of a model whose layers have page tables of their own."""
        if self.page_tables_per_layer is not None:
            return torch.stack(self.page_tables_per_layer)
        return self.page_table.expand(self.layers, -1, -1) if self.layers else self.page_table


def _ints(values: Any) -> list[int]:
    listed = cast("list[Any]", values if isinstance(values, list) else values.tolist())
    return [int(value) for value in listed]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.to(torch.int64, copy=True)
