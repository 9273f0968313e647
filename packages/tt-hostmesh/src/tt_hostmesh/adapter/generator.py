"""tt-metal's model class contract over a `Compute`: prefill, decode, read-back, warm-up, KV cache."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from tt_hostmesh.adapter.arguments import DecodeArguments, PrefillArguments
from tt_hostmesh.adapter.compute import Compute, KVLayout, StatefulCompute
from tt_hostmesh.adapter.device import DeviceSide
from tt_hostmesh.adapter.images import DECODE_KEYWORD, ImageArguments, ImageCompute, RopeCompute
from tt_hostmesh.adapter.lanes import Placement
from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.adapter.readback import DevicePayload, HostPayload, Result
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.sampling import SamplingColumns
from tt_hostmesh.strict.breach import Limits, strict_wanted
from tt_hostmesh.strict.checker import ContractChecker

DEFAULT_MAX_TOKENS = 131072
PER_LAYER = "page_tables_per_layer"


class HostGenerator:
    """A model object as a tt-metal adapter presents it. Source of all rules: tt-metal contract 1.1 to 1.9.

    `protocol` fixes the decode protocol of a class; None = TT_HOST_PROTOCOL, default v1. An instance has
    `decode_input_update_contract` = 1 under v1 and no such attribute under the legacy protocol.
    """

    protocol: ClassVar[DecodeProtocol | None] = None
    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_prefix_caching": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_chunked_prefill": True,
        "max_device_top_k": 32,
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
        self._placement = placement
        self._mesh = placement.mesh
        self._protocol = self.protocol or DecodeProtocol.chosen()
        if self._protocol is DecodeProtocol.V1:
            self.decode_input_update_contract = 1
        self.already_warmed_up_prefill = False
        self._checker = _checker(type(self).__name__, compute, placement, self._protocol)
        self._sees = isinstance(compute, ImageCompute)
        self._turns = isinstance(compute, RopeCompute)
        self._device = DeviceSide(compute, placement, self._protocol)
        self._kv_cache: list[object] | None = None
        self._released = False

    # Loading and memory

    @classmethod
    def get_max_tokens_all_users(
        cls, *, model_name: str, num_devices: int, tt_data_parallel: int, max_model_len: int, max_num_seqs: int
    ) -> int:
        """KV tokens of one lane's cache: TT_HOST_MAX_TOKENS_ALL_USERS, else 131072. ValueError if not a number > 0."""
        value = os.environ.get("TT_HOST_MAX_TOKENS_ALL_USERS", "").strip()
        if not value:
            return DEFAULT_MAX_TOKENS
        if not value.isdecimal() or int(value) == 0:
            raise ValueError(f"TT_HOST_MAX_TOKENS_ALL_USERS={value!r} is not a number of tokens above 0")
        return int(value)

    def allocate_kv_cache(self, shape: Sequence[int], dtype: torch.dtype, num_layers: int) -> list[object]:
        """One cache a lane; the caller hands the list back with every call.

        shape: (num_blocks, kv heads of one device, block_size, head_size). The host keeps float32 whatever `dtype` is,
        and all heads of a lane in one place. Raises ValueError when the heads do not fit the lane's devices.
        """
        self._require_usable("allocate_kv_cache")
        num_blocks, _, block_size, _ = shape
        self._require_heads(shape, self._device.compute.num_kv_heads)
        layout = KVLayout(self._placement.lanes, num_blocks, block_size)
        self._kv_cache = self._a_cache_each_lane(self._device.allocate(layout, num_layers))
        if self._checker:
            self._checker.allocated(num_blocks, block_size, self._kv_cache)
        return self._kv_cache

    def _require_heads(self, shape: Sequence[int], total: int) -> None:
        devices = self._placement.devices_per_lane
        expected = total // min(devices, total)
        if shape[1] != expected:
            raise ValueError(
                f"KV cache shape {tuple(shape)} has {shape[1]} heads: {total} heads on {devices} devices a lane make "
                f"{expected} a device (tt-metal contract 1.3)"
            )

    def _a_cache_each_lane(self, handle: object) -> list[object]:
        return [(lane, handle) for lane in range(self._placement.lanes)]

    def release_request(self, slot: int) -> None:
        """The request in `slot` finished or was preempted. This model keeps nothing for it; strict mode takes note."""
        self._require_usable("release_request")
        if self._checker:
            self._checker.release(slot)

    def release_persistent_capture(self) -> None:
        """Last call of a worker, with the mesh still open. Any call after it raises HostMeshError."""
        self._require_usable("release_persistent_capture")
        self._mesh.finish()
        self._released = True

    # Warm-up

    def warmup_model_prefill(self, kv_cache: object, enable_trace: bool, can_sample_on_device: bool) -> None:
        """Runs a prefill with an all-zero page table: block 0 is overwritten."""
        self._require_usable("warmup_model_prefill")
        if self._checker:
            rows = self._placement.max_batch_size
            self._checker.warm_up("warmup_model_prefill", kv_cache, traced=enable_trace, rows=rows, width=None)
        self._mesh.submit(self._device.warm_prefill, "warm-up prefill").wait()
        self.already_warmed_up_prefill = True

    def warmup_model_decode(
        self, kv_cache: object, enable_trace: bool, max_batch_size: int, num_blocks: int, can_sample_on_device: bool
    ) -> None:
        """Runs a decode of all rows with all-zero page tables: block 0 is overwritten. num_blocks: their width."""
        self._require_usable("warmup_model_decode")
        if self._checker:
            self._checker.warm_up(
                "warmup_model_decode", kv_cache, traced=enable_trace, rows=max_batch_size, width=num_blocks
            )
        self._mesh.submit(lambda: self._device.warm_decode(num_blocks), "warm-up decode").wait()

    # Steps

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
    ) -> Any:
        """Compute positions [start_pos, prompt_lens) of each row. Blocks until the result is there.

        tokens int32 [n, max_end] from position 0; page_table int32 [n, W], packed, lane-local ids; prompt_lens and
        start_pos per row; empty_slots: the rows' slots, default 0..n-1.
        Returns logits float32 [n, 1, vocab], or with sampling_params (tokens int64 [n, 1], logprobs float32 [n]).
        A model that sees takes pixel_values and image_grid_thw too; one with rotary positions in three axes puts rope
        deltas, int64 [n, 1], behind either.
        """
        self._require_usable("prefill_forward")
        images = ImageArguments.take(unknown) if self._sees else None
        per_layer = unknown.pop(PER_LAYER, None) if self._device.layers else None
        arguments = PrefillArguments(
            tokens=tokens,
            page_table=page_table,
            kv_cache=kv_cache,
            prompt_lens=prompt_lens,
            enable_trace=enable_trace,
            start_pos=start_pos,
            empty_slots=empty_slots,
            sampling_params=sampling_params,
            unknown=unknown,
            images=images,
            page_tables_per_layer=per_layer,
            layers=self._device.layers,
        )
        if self._checker:
            self._checker.prefill(arguments, self._mesh.settle)
        if not self.already_warmed_up_prefill:
            self._mesh.submit(self._device.warm_prefill, "warm-up prefill").wait()
            self.already_warmed_up_prefill = True
        call = arguments.call(self._device.offsets)
        result = self._mesh.submit(lambda: self._device.prefill(call), "prefill").result()
        if self._checker:
            arguments.overwrite_beyond_ends()
            if self._turns:
                self._checker.rope_deltas_known(call.slots, result[1])
        return result

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
        deltas = unknown.pop(DECODE_KEYWORD, None) if self._turns else None
        per_layer = unknown.pop(PER_LAYER, None) if self._device.layers else None
        arguments = DecodeArguments(
            tokens=tokens,
            start_pos=start_pos,
            page_table=page_table,
            kv_cache=kv_cache,
            enable_trace=enable_trace,
            read_from_device=read_from_device,
            sampling_params=sampling_params,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            slot_remap=slot_remap,
            reset_batch=reset_batch,
            reload_inputs=reload_inputs,
            reload_page_table=reload_page_table,
            reload_sampling_params=reload_sampling_params,
            reset_sampling_state=reset_sampling_state,
            unknown=unknown,
            rope_deltas=deltas,
            page_tables_per_layer=per_layer,
            layers=self._device.layers,
        )
        checked = self._checker.decode(arguments) if self._checker else None
        sampling = self._sampling_of(sampling_params, bool(reload_sampling_params))
        call = arguments.call(sampling, checked.record if checked else None)
        payload = DevicePayload(self._mesh.submit(lambda: self._device.decode(call), "decode"), call.sampled)
        if checked:
            checked.accept(payload)
        return payload.event.result() if read_from_device else payload

    def _sampling_of(self, params: Any, reload: bool) -> SamplingColumns | None:
        """The parameters, copied now because the caller may change its lists; None where the protocol ignores them."""
        if params is None or (self._protocol is DecodeProtocol.V1 and not reload):
            return None
        return SamplingColumns.of(params, self._placement.max_batch_size)

    # Read-back

    def read_decode_output(self, payload: DevicePayload, async_read: bool = False) -> Any:
        """Start the copy to the host. With async_read (host payload, [an event per lane]), else the host payload."""
        self._require_usable("read_decode_output")
        if self._checker:
            self._checker.read(payload)
        source = payload.event
        events = [lane.submit(source.computed, "read decode output") for lane in self._placement.submeshes]
        host = HostPayload(payload, events[-1])
        if async_read:
            return host, events
        events[-1].wait()
        return host

    def process_decode_output_host(self, payload: HostPayload | DevicePayload, is_tokens: bool = True) -> Result:
        """The result behind a host payload, or straight from a device payload. See decode_forward."""
        if self._checker:
            self._checker.process(payload, is_tokens)
        return payload.event.result()

    def _require_usable(self, method: str) -> None:
        self._mesh.require_open(f"{type(self).__name__}.{method}")
        if self._released:
            raise HostMeshError(f"{type(self).__name__}.{method} after release_persistent_capture")

    # vLLM's model inspection wants these names; nobody calls them.

    def embed_input_ids(self, input_ids: object) -> object:
        raise NotImplementedError(_NOT_VLLM)

    def forward(self, input_ids: object, positions: object) -> object:
        raise NotImplementedError(_NOT_VLLM)

    def compute_logits(self, hidden_states: object) -> object:
        raise NotImplementedError(_NOT_VLLM)


_NOT_VLLM = "this class is driven by the TT worker, through prefill_forward and decode_forward"


def _checker(model: str, compute: Compute, placement: Placement, protocol: DecodeProtocol) -> ContractChecker | None:
    if not strict_wanted():
        return None
    limits = Limits(
        model,
        protocol,
        compute.vocab_size,
        placement,
        stateful=isinstance(compute, StatefulCompute),
        placeholder=compute.placeholder if isinstance(compute, ImageCompute) else None,
        turns=isinstance(compute, RopeCompute),
        top_logprobs=getattr(compute, "top_logprobs", 0),
    )
    return ContractChecker(limits)
