"""Llama with block output, plain and adaptive, as a plugin may register it (tt-metal contract 1.12).

Every step of a block is a decode step of the Llama beneath, with the same arguments that a plugin would send: so the
strict mode checks each of them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.blocks.payload import BlockPayload
from tt_hostmesh.errors import ContractError
from tt_hostmesh.llama.generator import LlamaForCausalLM

WIDTH = 8

_LLAMA: Any = LlamaForCausalLM
"""The calls beneath. Each step's keywords travel through here as they came."""

STEADY = {
    "reload_inputs": False,
    "reload_page_table": False,
    "reload_sampling_params": False,
    "reset_sampling_state": False,
}
RESET = {
    "reload_inputs": True,
    "reload_page_table": False,
    "reload_sampling_params": True,
    "reset_sampling_state": True,
}


class BlockLlamaForCausalLM(LlamaForCausalLM):
    """One request, WIDTH tokens a step: a prefill answers with the first block, [1, WIDTH], a decode with the next.

    start_pos of a decode is that of the last token known, which is the first to be computed.
    """

    protocol = DecodeProtocol.V1
    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_sample_on_device": True,
        "output_tokens_per_step": WIDTH,
    }

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        rows = self._placement.max_batch_size
        if rows > 1 and not self.model_capabilities.get("tt_adaptive_block_output"):
            raise ValueError(f"{type(self).__name__} serves one request: max_batch_size is {rows}, allowed is 1")
        if self._checker:
            self._checker.look_ahead(2 * WIDTH)
        self._positions = torch.full((rows,), -1, dtype=torch.int64)

    def prefill_forward(self, **keywords: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The first block, int64 [1, WIDTH]: one token of the prefill, the rest of decode steps behind it."""
        self._require_sampled("prefill_forward", keywords)
        anchor, _ = _LLAMA.prefill_forward(self, **keywords)
        same = ("page_table", "kv_cache", "enable_trace", "sampling_params")
        end = torch.tensor([int(keywords["prompt_lens"][0])], dtype=torch.int32)
        call = {"tokens": anchor.int(), "start_pos": end, **{name: keywords[name] for name in same}, **RESET}
        return torch.cat([anchor.long(), self._result(self._steps(call, WIDTH - 1, row=0))], 1)

    def decode_forward(  # pyright: ignore[reportIncompatibleMethodOverride] - keyword calls only (contract 1.6)
        self, *, read_from_device: bool = True, **keywords: Any
    ) -> Any:
        """The next block, int64 [1, WIDTH]; with read_from_device False its payload."""
        self._require_sampled("decode_forward", keywords)
        live: list[int] = [row for row, position in enumerate(keywords["start_pos"].tolist()) if position >= 0]
        width = self._width(live)
        payload = self._steps(keywords, width, row=live[0] if width > 1 else None)
        return self._result(payload) if read_from_device else payload

    def _width(self, live: list[int]) -> int:
        return WIDTH

    def _require_sampled(self, method: str, keywords: Mapping[str, Any]) -> None:
        if keywords.get("sampling_params") is None:
            name = f"{type(self).__name__}.{method}"
            raise ContractError(name, "1.12", "sampling_params is missing: blocks are sampled on the device")

    def _steps(self, call: Mapping[str, Any], width: int, row: int | None) -> BlockPayload:
        """`width` decode steps, the first as `call` says, each later one on what is resident. None beyond the end."""
        if call["reload_inputs"]:
            self._positions = call["start_pos"].long().clone()
        live = self._positions >= 0
        payload = BlockPayload([], [], width, row)
        for i in range(width):
            if int(self._positions[live].max()) >= self._placement.max_seq_len:
                break
            here = {**call, "start_pos": self._positions.int(), **(STEADY if i else {})}
            step = _LLAMA.decode_forward(self, **here, read_from_device=False)
            host, events = _LLAMA.read_decode_output(self, step, async_read=True)
            payload.steps.append(host)
            payload.events += events
            self._positions[live] += 1
        return payload

    def read_decode_output(self, payload: Any, async_read: bool = False) -> Any:
        """The reads run already: each step's came right behind it."""
        return (payload, payload.events) if async_read else payload

    def process_decode_output_host(self, payload: Any, is_tokens: bool = True) -> Any:
        return self._result(payload)

    def _result(self, payload: BlockPayload) -> Tensor:
        for event in payload.events:
            event.wait()
        return payload.gather(
            [_LLAMA.process_decode_output_host(self, step, is_tokens=True)[0] for step in payload.steps]
        )


class AdaptiveBlockLlamaForCausalLM(BlockLlamaForCausalLM):
    """Several requests: a lone row gets [1, WIDTH], rows of a batch one token each, [B, 1], and a prefill one anchor.

    A prompt longer than LONGEST stays at one token a step for its life.
    """

    LONGEST = 200
    model_capabilities: ClassVar[dict[str, Any]] = {
        **BlockLlamaForCausalLM.model_capabilities,
        "supports_async_decode": True,
        "max_device_top_k": None,
        "tt_adaptive_block_output": True,
        "tt_adaptive_block_max_prompt_tokens": LONGEST,
    }

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._narrow: set[int] = set()

    def prefill_forward(self, **keywords: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Tokens [n, 1] with sampling_params, else logits: an anchor of each row."""
        for slot, end in zip(keywords["empty_slots"], keywords["prompt_lens"].tolist(), strict=True):
            (self._narrow.add if end > self.LONGEST else self._narrow.discard)(slot)
        return _LLAMA.prefill_forward(self, **keywords)

    def release_request(self, slot: int) -> None:
        super().release_request(slot)
        self._narrow.discard(slot)

    def note_state_slots_moved(self, moved: Mapping[int, int]) -> None:
        """Requests changed their slots: old slot -> new slot."""
        self._narrow = {moved.get(slot, slot) for slot in self._narrow}

    def _width(self, live: list[int]) -> int:
        return WIDTH if len(live) == 1 and live[0] not in self._narrow else 1
