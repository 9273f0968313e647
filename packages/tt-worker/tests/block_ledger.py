"""The ledger model as a class with block output, plain and adaptive (tt-metal contract 1.12)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import BLOCK, LedgerModel

NOTHING = -1
"""What stands in a block behind the end of the longest sequence. It is no token."""


class BlockLedger(LedgerModel):
    """Several of its own steps for one call, and the tenancies of its slots, which such a class tells apart by their
    first blocks.

    width:      tokens of a block;  adaptive: for a lone row only
    max_prompt: a slot that a longer prompt was put into stays at one token a step; 0: none does
    longest:    positions of the longest sequence; nothing is computed there or behind
    held:       the first block of each slot that is in use
    """

    def __init__(
        self,
        rows: int,
        blocks: int = 64,
        *,
        width: int,
        adaptive: bool,
        contract: int = 1,
        max_prompt: int = 0,
        longest: int = 64,
    ) -> None:
        super().__init__(rows, blocks, contract=contract)
        self.block_width = width
        self.adaptive = adaptive
        self.max_prompt = max_prompt
        self.longest = longest
        self.held: dict[int, int] = {}
        self.narrow: set[int] = set()
        self.asked: list[list[int]] = []
        self.released: list[int] = []
        self.captures_released = 0

    def _write(self, tables: list[np.ndarray], row: int, slot: int, position: int, token: int) -> None:
        assert tables[0][row, position // BLOCK], f"nothing is reserved for position {position}"
        super()._write(tables, row, slot, position, token)

    def prefill_forward(self, **call: Any) -> torch.Tensor:
        firsts = call["page_table"][:, 0].tolist()
        for slot, first, end in zip(call["empty_slots"], firsts, call["prompt_lens"], strict=True):
            assert slot not in self.held, f"slot {slot} was not released"
            assert first not in self.held.values(), f"block {first} is another request's"
            self.held[slot] = first
            (self.narrow.add if 0 < self.max_prompt < end else self.narrow.discard)(slot)
        anchors = super().prefill_forward(**call)
        return anchors if self.adaptive else self._rest_of_block(int(anchors[0]), call)

    def _rest_of_block(self, token: int, call: dict[str, Any]) -> torch.Tensor:
        (slot,), (end,) = call["empty_slots"], call["prompt_lens"]
        tables = [call["page_table"].numpy()]
        tokens = [token]
        for position in range(int(end), int(end) + self.block_width - 1):
            if position >= self.longest:
                tokens.append(NOTHING)
                continue
            self._write(tables, 0, slot, position, tokens[-1])
            tokens.append(self._next(tables, 0, slot, position + 1))
        return torch.tensor([tokens])

    def decode_forward(self, **call: Any) -> dict[str, Any]:
        positions = call["start_pos"].tolist()
        self.asked.append(positions)
        live = [row for row, position in enumerate(positions) if position >= 0]
        lone = len(live) == 1 and live[0] not in self.narrow
        width = self.block_width if lone or not self.adaptive else 1
        steady = ("reload_inputs", "reload_page_table") if self.decode_input_update_contract else ("reset_batch",)
        steps: list[list[int]] = []
        for i in range(width):
            if positions[live[0]] + i >= self.longest:
                steps.append([NOTHING] * len(positions))
                continue
            steps.append(super().decode_forward(**(call | dict.fromkeys(steady, False) if i else call))["answers"])
            if i == 0:
                self._check_tenancies(live, positions)
        tokens = torch.tensor(steps).T
        return {"answers": tokens[live] if width > 1 else tokens, "on_device": call.get("sampling_params") is not None}

    def _check_tenancies(self, live: list[int], positions: list[int]) -> None:
        """The device is where the call says, and its rows are the requests that were put there."""
        here = [position - 1 if position >= 0 else position for position in self.positions.tolist()]
        assert here == positions, "the device is elsewhere"
        assert {row: self.held.get(row) for row in live} == {row: self.tables[0][row, 0] for row in live}

    def process_decode_output_host(self, payload: dict[str, Any], is_tokens: bool) -> torch.Tensor:
        assert is_tokens == payload["on_device"]
        return payload["answers"]

    def release_request(self, slot: int) -> None:
        assert self.held.pop(slot, None) is not None, f"slot {slot} holds nobody"
        self.narrow.discard(slot)
        self.released.append(slot)

    def release_persistent_capture(self) -> None:
        self.captures_released += 1
