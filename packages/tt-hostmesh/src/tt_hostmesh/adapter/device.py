"""A model's half of a step that runs in the device thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import Compute, KVLayout, Logits, PerLayerCompute, PrefillRow, StatefulCompute
from tt_hostmesh.adapter.decode import DecodeCall
from tt_hostmesh.adapter.images import RopeCompute
from tt_hostmesh.adapter.lanes import Placement
from tt_hostmesh.adapter.protocol import DecodeProtocol, stage
from tt_hostmesh.adapter.readback import Logprobs, Result
from tt_hostmesh.adapter.resident import Resident
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.peaks import Peaks
from tt_hostmesh.sampling import SamplingColumns, SamplingTable, TokenCounts, sample

WARMUP_TOKENS = 32


@dataclass(frozen=True, slots=True)
class PrefillCall:
    """One prefill. slots: the rows' state slots; sampling: None = logits to the host."""

    rows: Sequence[PrefillRow]
    slots: Sequence[int]
    sampling: SamplingColumns | None


class DeviceSide:
    """Weights, cache, resident inputs and sampler of one model. Every method is a command of the mesh's queue."""

    def __init__(self, compute: Compute, placement: Placement, protocol: DecodeProtocol) -> None:
        self.compute = compute
        self._placement = placement
        self._protocol = protocol
        self._state = compute if isinstance(compute, StatefulCompute) else None
        self._turns = compute if isinstance(compute, RopeCompute) else None
        self._by_layer = compute if isinstance(compute, PerLayerCompute) else None
        self._top_logprobs: int = getattr(compute, "top_logprobs", 0)
        self._resident = Resident(placement.max_batch_size)
        self._generator = torch.Generator()
        self._generator.seed()
        self.offsets = torch.zeros(placement.max_batch_size, 1, dtype=torch.int64)
        """int64 [B, 1]: what turns a row's lane-local block ids into ids of the common pool."""

    def allocate(self, layout: KVLayout, num_layers: int) -> object:
        self.offsets = self._placement.pool_offsets(layout.num_blocks)
        return self.compute.allocate(layout, num_layers)

    def allocate_layers(self, layout: KVLayout, buffers: Sequence[int]) -> object:
        """For a model whose layers have page tables of their own: layers of one number lie in one buffer."""
        if self._by_layer is None:
            raise HostMeshError("this model allocates all layers alike")
        self.offsets = self._placement.pool_offsets(layout.num_blocks)
        return self._by_layer.allocate_layers(layout, buffers)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of each layer that has a page table of its own."""
        return () if self._by_layer is None else self._by_layer.windows

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """Of each of these layers."""
        return () if self._by_layer is None else self._by_layer.kv_heads

    @property
    def layers(self) -> int:
        """Layers with a page table of their own; 0 for a model whose layers share one."""
        return len(self.windows)

    def warm_prefill(self) -> None:
        """A prefill into block 0. Whatever was resident is gone."""
        length = min(WARMUP_TOKENS, self._placement.max_seq_len)
        zeros = torch.zeros(length, dtype=torch.int64)
        self.compute.prefill([PrefillRow(zeros, 0, zeros.expand(self.layers, -1) if self.layers else zeros)])
        self._resident.clear()

    def warm_decode(self, width: int) -> None:
        """A decode of all rows at position 0 of block 0. Whatever was resident is gone."""
        zeros = torch.zeros(self._placement.max_batch_size, dtype=torch.int64)
        blocks = self.offsets.expand(-1, width)
        blocks = blocks.expand(self.layers, -1, -1) if self.layers else blocks
        self._forward(zeros, zeros, blocks, torch.arange(len(zeros)))
        self._resident.clear()

    def prefill(self, call: PrefillCall) -> Any:
        """Logits float32 [n, 1, vocab], or [n, s, vocab] of a model that answers all positions, or (tokens int64
        [n, 1], logprobs); one with rotary positions in three axes puts rope deltas, int64 [n, 1], behind it."""
        out = self._prefill(call)
        return out if self._turns is None else (out, self._turns.rope_deltas(call.rows))

    def _prefill(self, call: PrefillCall) -> Any:
        logits = self.compute.prefill(call.rows)
        self._resident.forget_rows(call.slots)
        if call.sampling is None:
            dense = logits.dense() if isinstance(logits, Peaks) else logits
            return dense if dense.dim() == 3 else dense[:, None]
        if not isinstance(logits, Peaks) and logits.dim() == 3:
            logits = logits[:, -1]
        table = call.sampling.table()
        counts = self._prompt_counts(call.rows) if table.penalised else None
        ends = torch.tensor([len(row.tokens) for row in call.rows])
        sampled, logprobs = self._draw(logits, table, ends, counts, torch.arange(len(call.rows)))
        return sampled[:, None], logprobs

    def decode(self, call: DecodeCall) -> Result:
        """(tokens int32 [B], logprobs) or (logits float32 [B, 1, vocab], None); padding rows are 0.

        logprobs: float32 [B], or where a row asked and the model has them, its best as (float32 [B, m], int32 [B, m]).
        """
        state = self._resident
        stage(self._protocol, state, call, self.compute.vocab_size)
        if call.rope_deltas is not None:
            state.rope_deltas[: len(call.rope_deltas)] = call.rope_deltas
        if self._state is not None and call.slot_remap is not None:
            self._state.permute_state(call.slot_remap)
        if state.page_table is None:
            raise HostMeshError("the first decode step loaded no inputs: there is nothing on the device")
        live = (state.positions >= 0).nonzero()[:, 0]
        if call.on_inputs is not None:
            call.on_inputs(live, state.tokens[live], state.positions[live])
        if not len(live):
            return self._nothing(call.sampled)
        blocks = state.page_table[..., live, :] + self.offsets[live]
        logits = self._forward(state.tokens[live], state.positions[live], blocks, live)
        if call.sampled:
            return self._sample(logits, live)
        state.advance(live, None)
        if isinstance(logits, Peaks):
            return logits.dense(live, state.rows)[:, None], None
        return _spread(logits[:, None], live, state.rows), None

    def _forward(self, tokens: Tensor, positions: Tensor, blocks: Tensor, rows: Tensor) -> Logits:
        """One step of `rows`, int64 [n], which are the slots of a model that has state."""
        more: dict[str, Tensor] = {}
        if self._state is not None:
            more["slots"] = rows
        if self._turns is not None:
            more["rotary"] = positions + self._resident.rope_deltas[rows]
        return self.compute.decode(tokens, positions, blocks, **more)

    def _sample(self, logits: Logits, live: Tensor) -> Result:
        state = self._resident
        if state.sampling is None:
            raise HostMeshError("the first device-sampled step loaded no sampling parameters")
        table = state.sampling if len(live) == state.rows else state.sampling.take(live)
        sampled, logprobs = self._draw(logits, table, state.positions[live] + 1, state.counts, live)
        if state.counts is not None:
            state.counts.add(live, sampled)
        state.advance(live, sampled)
        tokens = _spread(sampled.int(), live, state.rows)
        if isinstance(logprobs, tuple):
            values, ids = logprobs
            return tokens, (_spread(values, live, state.rows), _spread(ids, live, state.rows))
        out = torch.ones(state.rows)
        out[live] = logprobs
        return tokens, out

    def _draw(
        self, logits: Logits, table: SamplingTable, positions: Tensor, counts: TokenCounts | None, rows: Tensor
    ) -> tuple[Tensor, Logprobs]:
        """Tokens and logprobs; `rows`: those of `counts` that the logits belong to, in order."""
        if isinstance(logits, Peaks):
            some = None if counts is None else counts.at(rows, logits.ids)
            return logits.sample(table, positions, some, self._generator)
        some = None if counts is None else counts.take(rows)
        sampled, logprobs = sample(logits, table, positions, some, self._generator)
        if self._top_logprobs and table.logprobs.any():
            best = logits.log_softmax(-1).topk(min(self._top_logprobs, logits.shape[-1]), -1)
            return sampled, (best.values, best.indices.int())
        return sampled, logprobs

    def _nothing(self, sampled: bool) -> Result:
        rows = self._resident.rows
        if sampled:
            return torch.zeros(rows, dtype=torch.int32), torch.ones(rows)
        return torch.zeros(rows, 1, self.compute.vocab_size), None

    def _prompt_counts(self, rows: Sequence[PrefillRow]) -> TokenCounts:
        """A prefill is not told what was prompt and what was generated: all of it counts as prompt."""
        history = torch.nn.utils.rnn.pad_sequence([row.tokens for row in rows], batch_first=True, padding_value=-1)
        return TokenCounts.of(history, None, self.compute.vocab_size)


def _spread(values: Tensor, rows: Tensor, total: int) -> Tensor:
    """`values` of `rows` placed among `total` rows, zeros elsewhere."""
    if len(rows) == total:
        return values
    out = torch.zeros(total, *values.shape[1:], dtype=values.dtype)
    out[rows] = values
    return out
