"""A model whose every token depends on its whole context, read through the page tables it is given.

The cache stores token ids; the next token is a digest of the context. A wrong block, position, token, row or reload
shows as a
wrong token. Speaks both decode protocols and returns tokens or logits as asked. Not a mock: it computes what it
returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tt_sampling.parameters import RowSampling

VOCABULARY = 97
BLOCK = 4


def next_token(context: Sequence[int]) -> int:
    """The token that follows a context."""
    digest = 7
    for token in context:
        digest = (digest * 31 + int(token) + 1) % 1_000_003
    return digest % VOCABULARY


class LedgerModel:
    def __init__(self, rows: int, blocks: int, *, contract: int) -> None:
        self.decode_input_update_contract = contract
        self.cache = np.full((blocks, BLOCK), -1, dtype=np.int64)
        self.tokens = np.zeros(rows, dtype=np.int64)
        self.positions = np.full(rows, -1, dtype=np.int64)
        self.table: np.ndarray | None = None
        self.reads = 0
        self.sampled_on_device: list[bool] = []

    def _context(self, table: np.ndarray, end: int) -> list[int]:
        blocks = table[: -(-end // BLOCK)]
        return self.cache[blocks].reshape(-1)[:end].tolist()

    def _answer(self, tokens: list[int], on_device: bool) -> torch.Tensor:
        if on_device:
            return torch.tensor(tokens)
        logits = torch.zeros(len(tokens), 1, VOCABULARY)
        for i, token in enumerate(tokens):
            logits[i, 0, token] = 1.0
        return logits

    def prefill_forward(
        self, *, tokens: Any, page_table: Any, kv_cache: Any, enable_trace: bool, prompt_lens: Any, start_pos: Any,
        empty_slots: list[int], sampling_params: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        self.sampled_on_device.append(sampling_params is not None)
        answers: list[int] = []
        for i, (start, end) in enumerate(zip(start_pos, prompt_lens, strict=True)):
            assert 0 <= start < end
            table = page_table[i].numpy()
            for position in range(start, end):
                self.cache[table[position // BLOCK], position % BLOCK] = int(tokens[i, position])
            answers.append(next_token(self._context(table, end)))
        return self._answer(answers, sampling_params is not None)

    def decode_forward(
        self, *, tokens: Any, start_pos: Any, page_table: Any, kv_cache: Any, enable_trace: bool,
        read_from_device: bool, sampling_params: Any = None, reset_batch: bool | None = None, **reload: bool,
    ) -> dict[str, Any]:  # fmt: skip
        if self.decode_input_update_contract:
            assert reset_batch is None
            inputs, table = reload["reload_inputs"], reload["reload_page_table"]
        else:
            assert not reload
            inputs = reset_batch is not False
            table = True
        if inputs:
            self.tokens = tokens[:, 0].numpy().astype(np.int64)
            self.positions = start_pos.numpy().astype(np.int64)
        if inputs or table:
            self.table = page_table.numpy().copy()
            assert not self.table[self.positions < 0].any(), "a free row owns blocks (contract 1.6)"
        answers = [0] * len(self.positions)
        for row, position in enumerate(self.positions):
            if position < 0:
                continue
            self.cache[self.table[row, position // BLOCK], position % BLOCK] = self.tokens[row]
            answers[row] = next_token(self._context(self.table[row], int(position) + 1))
        if sampling_params is not None:
            self.tokens = np.array(answers)
            self.positions = np.where(self.positions >= 0, self.positions + 1, -1)
        return {"answers": answers, "on_device": sampling_params is not None}

    def read_decode_output(self, payload: dict[str, Any], async_read: bool) -> tuple[dict[str, Any], list[Any]]:
        self.reads += 1
        return dict(payload), []

    def process_decode_output_host(self, payload: dict[str, Any], is_tokens: bool) -> torch.Tensor:
        assert is_tokens == payload["on_device"]
        return self._answer(payload["answers"], is_tokens)


@dataclass
class Sample:
    token_ids: list[int]
    logprobs: Any = None
    failed: dict[int, str] = field(default_factory=dict)


class Argmax:
    """The plain host sampler."""

    def admit(self, row: int, params: Any, prompt: Any, output: Any, *, request_id: str) -> RowSampling:
        return params

    def release(self, row: int) -> None: ...
    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Sample:
        return Sample(logits.argmax(-1).tolist())
