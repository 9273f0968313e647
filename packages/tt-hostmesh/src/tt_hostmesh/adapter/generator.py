"""tt-metal's model class contract over a `Compute`: prefill, decode, read-back, warm-up, KV cache."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import Compute, KVLayout, PrefillRow
from tt_hostmesh.adapter.decode import DecodeCall
from tt_hostmesh.adapter.lanes import Placement
from tt_hostmesh.adapter.protocol import Protocol, stage
from tt_hostmesh.adapter.readback import DevicePayload, HostPayload, Result
from tt_hostmesh.adapter.resident import Resident
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.sampling import MAX_TOP_K, SamplingTable, TokenCounts, sample

DEFAULT_MAX_TOKENS = 131072
WARMUP_TOKENS = 32


class HostGenerator:
    """A model object as a tt-metal adapter presents it. Source of all rules: tt-metal contract 1.1 to 1.9.

    Subclasses give `_build`. `protocol` fixes the decode protocol of a class; None = TT_HOST_PROTOCOL, default v1.
    An instance has `decode_input_update_contract` = 1 under v1 and no such attribute under the legacy protocol.
    """

    protocol: ClassVar[Protocol | None] = None
    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_prefix_caching": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_chunked_prefill": True,
        "max_device_top_k": MAX_TOP_K,
    }

    def __init__(
        self,
        compute: Compute | None = None,
        placement: Placement | None = None,
        *,
        vllm_config: object = None,
        prefix: str = "",
    ) -> None:
        """For `initialize_vllm_model`; the keywords make vLLM take the class for a model (see interfaces_base)."""
        if compute is None or placement is None or vllm_config is not None or prefix:
            raise NotImplementedError(f"{type(self).__name__} is built by initialize_vllm_model only")
        self._compute = compute
        self._placement = placement
        self._mesh = placement.mesh
        self._protocol = self.protocol or Protocol.named(os.environ.get("TT_HOST_PROTOCOL", Protocol.V1.value))
        if self._protocol is Protocol.V1:
            self.decode_input_update_contract = 1
        self.already_warmed_up_prefill = False
        self._resident = Resident(placement.max_batch_size)
        self._generator = torch.Generator()
        self._generator.seed()
        self._kv_cache: list[object] | None = None
        self._offsets = torch.zeros(placement.max_batch_size, 1, dtype=torch.int64)
        self._released = False

    # ---------------------------------------------------------------- loading and memory

    @classmethod
    def get_max_tokens_all_users(
        cls, *, model_name: str, num_devices: int, tt_data_parallel: int, max_model_len: int, max_num_seqs: int
    ) -> int:
        """KV tokens of one lane's cache: TT_HOST_MAX_TOKENS_ALL_USERS, else 131072. ValueError if not a number > 0."""
        value = os.environ.get("TT_HOST_MAX_TOKENS_ALL_USERS", "").strip()
        if not value:
            return DEFAULT_MAX_TOKENS
        if not value.isdecimal() or int(value) == 0:
            raise ValueError(
                f"TT_HOST_MAX_TOKENS_ALL_USERS={value!r} is not a number of tokens: give an integer above 0"
            )
        return int(value)

    def allocate_kv_cache(self, shape: Sequence[int], dtype: torch.dtype, num_layers: int) -> list[object]:
        """One cache a lane; the caller hands the list back with every call.

        shape: (num_blocks, kv heads of one device, block_size, head_size). The host keeps float32 whatever `dtype` is,
        and all heads of a lane in one place.
        """
        num_blocks, heads, block_size, _ = shape
        total = self._compute.num_kv_heads
        expected = total // min(self._placement.devices_per_lane, total)
        if heads != expected:
            raise ValueError(
                f"KV cache shape {tuple(shape)} has {heads} heads, but {total} heads on "
                f"{self._placement.devices_per_lane} devices a lane make {expected} a device"
            )
        layout = KVLayout(self._placement.lanes, num_blocks, block_size)
        handle = self._compute.allocate(layout, num_layers)
        self._offsets = self._placement.pool_offsets(num_blocks)
        self._kv_cache = [(lane, handle) for lane in range(layout.lanes)]
        return self._kv_cache

    def release_persistent_capture(self) -> None:
        """Last call of a worker, with the mesh still open. Any call after it raises HostMeshError."""
        self._require_usable("release_persistent_capture")
        self._mesh.finish()
        self._released = True

    # ---------------------------------------------------------------- warm-up

    def warmup_model_prefill(self, kv_cache: object, enable_trace: bool, can_sample_on_device: bool) -> None:
        """Runs a prefill with an all-zero page table: block 0 is overwritten."""
        self._require_usable("warmup_model_prefill")
        self._mesh.submit(self._warm_prefill, "warm-up prefill").wait()
        self.already_warmed_up_prefill = True

    def warmup_model_decode(
        self, kv_cache: object, enable_trace: bool, max_batch_size: int, num_blocks: int, can_sample_on_device: bool
    ) -> None:
        """Runs a decode of all rows with all-zero page tables: block 0 is overwritten, resident state is cleared."""
        self._require_usable("warmup_model_decode")
        self._mesh.submit(lambda: self._warm_decode(num_blocks), "warm-up decode").wait()

    def _warm_prefill(self) -> None:
        length = min(WARMUP_TOKENS, self._placement.max_seq_len)
        self._compute.prefill([PrefillRow(torch.zeros(length, dtype=torch.int64), 0, torch.zeros(length).long())])
        self._resident.clear()

    def _warm_decode(self, num_blocks: int) -> None:
        zeros = torch.zeros(self._placement.max_batch_size, dtype=torch.int64)
        logits = self._compute.decode(zeros, zeros, self._offsets.expand(-1, num_blocks))
        logits.argmax(-1)
        self._resident.clear()

    # ---------------------------------------------------------------- prefill

    def prefill_forward(
        self,
        tokens: Tensor,
        page_table: Tensor,
        kv_cache: object,
        prompt_lens: Any,
        enable_trace: bool = True,
        start_pos: Any = None,
        empty_slots: Sequence[int] | None = None,
        sampling_params: Any = None,
        **unknown: object,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute positions [start_pos, prompt_lens) of each row. Blocks until the result is there.

        tokens int32 [n, max_end] from position 0; page_table int32 [n, W], packed, lane-local ids; prompt_lens and
        start_pos per row; empty_slots: the rows' slots, default 0..n-1.
        Returns logits float32 [n, 1, vocab], or with sampling_params (tokens int64 [n, 1], logprobs float32 [n]).
        """
        self._require_usable("prefill_forward")
        ends = _ints(prompt_lens)
        starts = [0] * len(ends) if start_pos is None else _ints(start_pos)
        slots = list(range(len(ends))) if empty_slots is None else list(empty_slots)
        if not self.already_warmed_up_prefill:
            self.warmup_model_prefill(kv_cache, enable_trace, sampling_params is not None)
        rows = [
            PrefillRow(tokens[i, :end].long(), start, page_table[i].long() + self._offsets[slot])
            for i, (end, start, slot) in enumerate(zip(ends, starts, slots, strict=True))
        ]
        return self._mesh.submit(lambda: self._run_prefill(rows, slots, sampling_params), "prefill").result()

    def _run_prefill(
        self, rows: list[PrefillRow], slots: list[int], sampling_params: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        logits = self._compute.prefill(rows)
        self._resident.forget_rows(slots)
        if sampling_params is None:
            return logits[:, None]
        table = SamplingTable.of(sampling_params, len(rows))
        counts = self._prompt_counts(rows) if table.penalised else None
        ends = torch.tensor([len(row.tokens) for row in rows])
        sampled, logprobs = sample(logits, table, ends, counts, self._generator)
        return sampled[:, None], logprobs

    def _prompt_counts(self, rows: list[PrefillRow]) -> TokenCounts:
        """A prefill is not told what was prompt and what was generated: all of it counts as prompt."""
        history = torch.nn.utils.rnn.pad_sequence([row.tokens for row in rows], batch_first=True, padding_value=-1)
        return TokenCounts.of(history, None, self._compute.vocab_size)

    # ---------------------------------------------------------------- decode

    def decode_forward(
        self,
        tokens: Tensor,
        start_pos: Tensor,
        page_table: Tensor,
        kv_cache: object,
        enable_trace: bool = True,
        read_from_device: bool = True,
        sampling_params: Any = None,
        prompt_tokens: Tensor | None = None,
        output_tokens: Tensor | None = None,
        slot_remap: Tensor | None = None,
        reset_batch: bool | None = None,
        reload_inputs: bool | None = None,
        reload_page_table: bool | None = None,
        reload_sampling_params: bool | None = None,
        reset_sampling_state: bool | None = None,
        **unknown: object,
    ) -> Result | DevicePayload:
        """One step of all rows.

        tokens int32 [B, 1]; start_pos int32 [B], -1 on padding rows; page_table int32 [B, W], lane-local ids, 0 on
        padding. With read_from_device the result, else at once a payload for `read_decode_output`.
        The result is (tokens int32 [B], logprobs float32 [B]) with sampling_params, else (logits float32
        [B, 1, vocab], None); padding rows are 0.
        """
        self._require_usable("decode_forward")
        call = DecodeCall(
            tokens=_int64(tokens[:, 0]),
            start_pos=_int64(start_pos),
            page_table=_int64(page_table),
            traced=enable_trace,
            sampling=sampling_params,
            prompt_tokens=_copy(prompt_tokens),
            output_tokens=_copy(output_tokens),
            slot_remap=None if slot_remap is None else _int64(slot_remap),
            reset_batch=bool(reset_batch),
            reload_inputs=bool(reload_inputs),
            reload_page_table=bool(reload_page_table),
            reload_sampling_params=bool(reload_sampling_params),
            reset_sampling_state=bool(reset_sampling_state),
        )
        event = self._mesh.submit(lambda: self._run_decode(call), "decode")
        payload = DevicePayload(event, sampling_params is not None)
        return event.result() if read_from_device else payload

    def _run_decode(self, call: DecodeCall) -> Result:
        state = self._resident
        stage(self._protocol, state, call, self._compute.vocab_size)
        live = (state.positions >= 0).nonzero()[:, 0]
        if state.page_table is None:
            raise HostMeshError("the first decode step loaded no inputs: there is nothing on the device")
        if not len(live):
            return self._empty_result(call.sampling is not None)
        blocks = state.page_table[live] + self._offsets[live]
        logits = self._compute.decode(state.tokens[live], state.positions[live], blocks)
        if call.sampling is None:
            state.advance(live, None)
            return _spread(logits[:, None], live, state.rows), None
        return self._sample_decode(logits, live)

    def _sample_decode(self, logits: Tensor, live: Tensor) -> Result:
        state = self._resident
        if state.sampling is None:
            raise HostMeshError("the first device-sampled step loaded no sampling parameters")
        counts = None if state.counts is None else state.counts.take(live)
        sampled, logprobs = sample(
            logits, state.sampling.take(live), state.positions[live] + 1, counts, self._generator
        )
        if state.counts is not None:
            state.counts.add(live, sampled)
        state.advance(live, sampled)
        out = torch.ones(state.rows)
        out[live] = logprobs
        return _spread(sampled.int(), live, state.rows), out

    def _empty_result(self, sampled: bool) -> Result:
        rows = self._resident.rows
        if sampled:
            return torch.zeros(rows, dtype=torch.int32), torch.ones(rows)
        return torch.zeros(rows, 1, self._compute.vocab_size), None

    # ---------------------------------------------------------------- read-back

    def read_decode_output(self, payload: DevicePayload, async_read: bool = False) -> Any:
        """Start the copy to the host. With async_read (host payload, [an event per lane]), else the host payload."""
        self._require_usable("read_decode_output")
        source = payload.event
        first = self._mesh.submit(source.result, "read decode output")
        rest = [lane.submit(source.wait, "read decode output") for lane in self._placement.submeshes[1:]]
        host = HostPayload(payload, first)
        if async_read:
            return host, [first, *rest]
        first.wait()
        return host

    def process_decode_output_host(self, payload: HostPayload | DevicePayload, is_tokens: bool = True) -> Result:
        """The result behind a host payload, or straight from a device payload. See decode_forward."""
        return payload.event.result()

    def _require_usable(self, method: str) -> None:
        self._mesh.require_open(f"{type(self).__name__}.{method}")
        if self._released:
            raise HostMeshError(f"{type(self).__name__}.{method} after release_persistent_capture")

    # ---------------------------------------------------------------- vLLM's model inspection

    def embed_input_ids(self, input_ids: object) -> object:
        raise NotImplementedError("the TT worker drives this class by prefill_forward and decode_forward")

    def forward(self, input_ids: object, positions: object) -> object:
        raise NotImplementedError("the TT worker drives this class by prefill_forward and decode_forward")

    def compute_logits(self, hidden_states: object) -> object:
        raise NotImplementedError("the TT worker drives this class by prefill_forward and decode_forward")


def _ints(values: Any) -> list[int]:
    return [int(value) for value in (values if isinstance(values, list) else values.tolist())]


def _int64(tensor: Tensor) -> Tensor:
    """A private copy: the caller may reuse its buffer before the device gets to it."""
    return tensor.to(torch.int64, copy=True)


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def _spread(values: Tensor, rows: Tensor, total: int) -> Tensor:
    """`values` of `rows` placed among `total` rows, zeros elsewhere."""
    if len(rows) == total:
        return values
    out = torch.zeros(total, *values.shape[1:], dtype=values.dtype)
    out[rows] = values
    return out
