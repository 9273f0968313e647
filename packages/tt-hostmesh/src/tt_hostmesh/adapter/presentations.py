"""The faces of one model: decode protocol, signatures, read-back and the ways of an older tt-metal tree.

Each is a mixin over `HostGenerator`; `present` puts them before a model. Source: tt-metal contract 1.6, 1.7, 1.9, 7.
"""

from collections.abc import Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from tt_hostmesh.adapter.generator import HostGenerator
from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.adapter.readback import DevicePayload

JUNE_BATCHES = (1, 2, 4, 8, 16, 32)
JUNE_ALIGNMENT = 32


class Absent:
    """A method that a face does not have: to `hasattr` it is not there."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self._name}")


class V1(HostGenerator):
    """Decode protocol v1 whatever TT_HOST_PROTOCOL says."""

    protocol = DecodeProtocol.V1


class Legacy(HostGenerator):
    """The legacy decode protocol."""

    protocol = DecodeProtocol.LEGACY


class Closed(HostGenerator):
    """prefill_forward takes no keyword that it does not name, as that of the Galaxy models."""

    def prefill_forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        tokens: Tensor,
        page_table: Tensor,
        kv_cache: object,
        prompt_lens: Any,
        enable_trace: bool = True,
        start_pos: Any = None,
        empty_slots: Sequence[int] | None = None,
        sampling_params: Any = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        return super().prefill_forward(
            tokens, page_table, kv_cache, prompt_lens, enable_trace, start_pos, empty_slots, sampling_params
        )


class ClosedV1(Closed, V1):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Neither takes decode_forward: the keywords of v1 alone."""

    def decode_forward(  # pyright: ignore[reportIncompatibleMethodOverride]
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
        reload_inputs: bool | None = None,
        reload_page_table: bool | None = None,
        reload_sampling_params: bool | None = None,
        reset_sampling_state: bool | None = None,
    ) -> Any:
        return super().decode_forward(
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
            reload_inputs=reload_inputs,
            reload_page_table=reload_page_table,
            reload_sampling_params=reload_sampling_params,
            reset_sampling_state=reset_sampling_state,
        )


class ClosedLegacy(Closed, Legacy):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Neither takes decode_forward: the keywords of the Galaxy models, some of which mean nothing here."""

    def decode_forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        tokens: Tensor,
        start_pos: Tensor,
        page_table: Tensor,
        kv_cache: object,
        enable_trace: bool = True,
        read_from_device: bool = True,
        async_read: bool = True,
        sampling_params: Any = None,
        reset_inputs: bool = False,
        reset_batch: bool | None = None,
        prompt_tokens: Tensor | None = None,
        output_tokens: Tensor | None = None,
        slot_remap: Tensor | None = None,
    ) -> Any:
        return super().decode_forward(
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
        )


class HostResults(HostGenerator):
    """decode_forward waits and answers with host tensors, also when it is asked not to; there is no read-back."""

    read_decode_output = Absent()  # pyright: ignore[reportAssignmentType]
    process_decode_output_host = Absent()  # pyright: ignore[reportAssignmentType]

    @wraps(HostGenerator.decode_forward)
    def decode_forward(self, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().decode_forward(*args, **{**kwargs, "read_from_device": True})


class June(Legacy):
    """tt-metal's own Llama, Qwen and Mistral classes in mid-2026: batch sizes, alignment, slots, result shapes."""

    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_prefix_caching": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
    }
    release_request = Absent()  # pyright: ignore[reportAssignmentType]
    release_persistent_capture = Absent()  # pyright: ignore[reportAssignmentType]

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int = 1,
        optimizations: str | None = None,
    ) -> Any:
        """Raises ValueError for rows of one lane that are not a power of two up to 32."""
        if max_batch_size / tt_data_parallel not in JUNE_BATCHES:
            raise ValueError(
                f"max_batch_size={max_batch_size} on {tt_data_parallel} submeshes: one of {JUNE_BATCHES} on each"
            )
        load: Any = getattr(super(), "initialize_vllm_model")  # noqa: B009 - the model that this face is put before has it
        return load(
            hf_config,
            mesh_device,
            max_batch_size,
            max_seq_len=max_seq_len,
            tt_data_parallel=tt_data_parallel,
            optimizations=optimizations,
        )

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
        """Untraced, a first position that is no multiple of 32 is an error; rows of equal padded length are written by
        slot, and a slot that is not below their number is an IndexError."""
        ends = [int(end) for end in prompt_lens]
        starts = [0] * len(ends) if start_pos is None else [int(start) for start in start_pos]
        if not enable_trace and any(start % JUNE_ALIGNMENT for start in starts):
            raise RuntimeError(f"start_pos {starts} is not aligned to {JUNE_ALIGNMENT} tokens in an untraced prefill")
        slots = list(range(len(ends))) if empty_slots is None else list(empty_slots)
        if _batched(ends, starts, self._placement.lanes) and max(slots) >= len(ends):
            raise IndexError(f"index {max(slots)} is out of bounds for dimension 0 with size {len(ends)}")
        return super().prefill_forward(
            tokens,
            page_table,
            kv_cache,
            prompt_lens,
            enable_trace,
            start_pos,
            empty_slots,
            sampling_params,
            **unknown,
        )

    @wraps(HostGenerator.decode_forward)
    def decode_forward(self, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = super().decode_forward(*args, **kwargs)
        return result if isinstance(result, DevicePayload) else self._june(result)

    def process_decode_output_host(self, payload: Any, is_tokens: bool = True) -> Any:
        return self._june(super().process_decode_output_host(payload, is_tokens))

    def _june(self, result: Any) -> tuple[Tensor, Tensor]:
        """Tokens uint32 [B] and float32 logprobs, bfloat16 on eight chips; logits with as many ones beside them."""
        values, logprobs = result
        if values.dim() == 3:
            return values, torch.ones_like(values)
        narrow = torch.bfloat16 if self._placement.devices_per_lane == 8 else torch.float32
        return values.to(torch.uint32), logprobs.to(narrow)


def _batched(ends: Sequence[int], starts: Sequence[int], lanes: int) -> bool:
    """Whether the rows of a prefill are computed together: several, of one padded length, none with a cached part."""
    padded = {max(128, 1 << (end - 1).bit_length()) for end in ends}
    return len(ends) > 1 and len(padded) == 1 and not any(starts) and lanes == 1


FACES: Mapping[str, tuple[type[HostGenerator], ...]] = MappingProxyType(
    {
        "v1": (V1,),
        "legacy": (Legacy,),
        "v1-closed": (ClosedV1,),
        "legacy-closed": (ClosedLegacy,),
        "v1-host-results": (HostResults, V1),
        "legacy-host-results": (HostResults, Legacy),
        "v1-closed-host-results": (ClosedV1, HostResults),
        "legacy-closed-host-results": (ClosedLegacy, HostResults),
        "june": (June,),
    }
)


def present(model: type[HostGenerator], face: str) -> type[Any]:
    """`model` with the face of this name. Raises ValueError for a name that FACES does not have."""
    if face not in FACES:
        raise ValueError(f"the face {face!r} is unknown: allowed are {', '.join(FACES)}")
    return type(model.__name__, (*FACES[face], model), {"__module__": model.__module__, "__doc__": model.__doc__})
