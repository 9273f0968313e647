"""A model whose every token depends on its whole context, read through the page tables it is given.

The cache stores token ids; the next token is a digest of the context. A wrong block, position, token, row or reload
shows as a
wrong token. Speaks both decode protocols and returns tokens or logits as asked. Not a mock: it computes what it
returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch

from tt_sampling.parameters import RowSampling
from tt_worker.media import Image

VOCABULARY = 97
PLACEHOLDER = 97
BLOCK = 4


def next_token(context: Sequence[int], window: Sequence[int] = ()) -> int:
    """The token that follows a context; a model with a sliding window reads the end of it a second time, one with
    recurrent state what it remembers."""
    digest = 7
    for token in (*context, *window):
        digest = (digest * 31 + int(token) + 1) % 1_000_003
    return digest % VOCABULARY


def remember(memory: int, token: int) -> int:
    return (memory * 17 + token + 3) % 10_007


def answer(
    prompt: Sequence[int],
    max_tokens: int,
    window: int | None = None,
    *,
    recurrent: bool = False,
    images: Sequence[Image] | None = None,
) -> list[int]:
    """What a request gets when it is alone. images: those of a model that sees."""
    context = seen(prompt, [image.values["pixel_values"] for image in images or ()])
    delta = sum(1 - (image.end - image.start) for image in images or ())
    for _ in range(max_tokens):
        more = list(context[-window:]) if window else []
        more += [reduce(remember, context, 0)] if recurrent else []
        more += [] if images is None else [len(context) - 1 + delta]
        context.append(next_token(context, more))
    return context[len(prompt) :]


def seen(tokens: Sequence[int], images: Sequence[Sequence[int]]) -> list[int]:
    """What a model that sees reads: in the place of the placeholders the values of the images."""
    values = iter([value for image in images for value in image])
    return [next(values) if token == PLACEHOLDER else int(token) for token in tokens]


class LedgerModel:
    """window: None, or tokens that a second layer with blocks of its own looks back at; both lie in one buffer.
    recurrent: a third layer has no blocks but a memory in each slot, which only a prefill at 0 begins anew.
    sees: images stand for their placeholders and count one rotary position each, which every token depends on."""

    def __init__(
        self,
        rows: int,
        blocks: int,
        *,
        contract: int,
        window: int | None = None,
        recurrent: bool = False,
        sees: bool = False,
    ) -> None:
        self.window = window
        self.sees = sees
        self.deltas = [0] * rows
        self.recurrent = recurrent
        self.memory = [123] * rows
        self.remembered = [-1] * rows
        self.decode_input_update_contract = contract
        self.cache = np.full((blocks, BLOCK), -1, dtype=np.int64)
        self.tokens = np.zeros(rows, dtype=np.int64)
        self.positions = np.full(rows, -1, dtype=np.int64)
        self.tables: list[np.ndarray] = []
        self.reads = 0
        self.sampled_on_device: list[bool] = []

    def _tables(self, page_table: Any, per_layer: Any) -> list[np.ndarray]:
        """The table of each layer."""
        if self.window is None:
            assert per_layer is None, "one group needs no tables by layer (contract 1.5)"
            return [page_table.numpy()]
        assert torch.equal(per_layer[0][: len(page_table)], page_table)
        assert all(len(table) == len(self.positions) for table in per_layer), "B rows in every call (contract 1.5)"
        return [table.numpy() for table in per_layer]

    def _write(self, tables: list[np.ndarray], row: int, slot: int, position: int, token: int) -> None:
        for table in tables:
            self.cache[table[row, position // BLOCK], position % BLOCK] = token
        if self.recurrent:
            assert self.remembered[slot] == position, "a state goes forward only, one token at a time"
            self.memory[slot] = remember(self.memory[slot], token)
            self.remembered[slot] += 1

    def _begin(self, slot: int) -> None:
        self.memory[slot] = self.remembered[slot] = 0

    def _next(self, tables: list[np.ndarray], row: int, slot: int, end: int, delta: int = 0) -> int:
        read = [self.cache[table[row, : -(-end // BLOCK)]].reshape(-1)[:end].tolist() for table in tables]
        more = read[1][-self.window :] if self.window else []
        more += [self.memory[slot]] if self.recurrent else []
        more += [end - 1 + delta] if self.sees else []
        return next_token(read[0], more)

    def _answer(self, tokens: list[int], on_device: bool) -> torch.Tensor:
        if on_device:
            return torch.tensor(tokens)
        logits = torch.zeros(len(tokens), 1, VOCABULARY)
        for i, token in enumerate(tokens):
            logits[i, 0, token] = 1.0
        return logits

    def prefill_forward(
        self, *, tokens: Any, page_table: Any, kv_cache: Any, enable_trace: bool, prompt_lens: Any, start_pos: Any,
        empty_slots: list[int], sampling_params: Any = None, page_tables_per_layer: Any = None,
        pixel_values: Any = None, image_grid_thw: Any = None,
    ) -> Any:  # fmt: skip
        self.sampled_on_device.append(sampling_params is not None)
        tables = self._tables(page_table, page_tables_per_layer)
        answers: list[int] = []
        deltas: list[int] = []
        assert (pixel_values is not None) == self.sees == (image_grid_thw is not None)
        for i, (start, end) in enumerate(zip(start_pos, prompt_lens, strict=True)):
            assert 0 <= start < end
            mine = (pixel_values[i] if self.sees else None) or []
            assert sum(map(len, mine)) == (tokens[i, :end] == PLACEHOLDER).sum(), "an image is cut, or not there"
            row = seen(tokens[i, :end].tolist(), mine)
            deltas.append(sum(1 - len(image) for image in mine))
            slot = empty_slots[i]
            if start == 0:
                self._begin(slot)
            for position in range(start, end):
                self._write(tables, i, slot, position, row[position])
            answers.append(self._next(tables, i, slot, int(end), deltas[i]))
        out = self._answer(answers, sampling_params is not None)
        return (out, torch.tensor(deltas)[:, None]) if self.sees else out

    def decode_forward(
        self, *, tokens: Any, start_pos: Any, page_table: Any, kv_cache: Any, enable_trace: bool,
        read_from_device: bool, sampling_params: Any = None, reset_batch: bool | None = None,
        page_tables_per_layer: Any = None, **reload: Any,
    ) -> dict[str, Any]:  # fmt: skip
        if self.sees:
            deltas = reload.pop("rope_deltas_all_users")
            self.deltas[: len(deltas or ())] = deltas or ()
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
            self.tables = [table.copy() for table in self._tables(page_table, page_tables_per_layer)]
            for owned in self.tables:
                assert not owned[self.positions < 0].any(), "a free row owns blocks (contract 1.6)"
        answers = [0] * len(self.positions)
        for row, position in enumerate(self.positions):
            if position < 0:
                continue
            self._write(self.tables, row, row, position, int(self.tokens[row]))
            answers[row] = self._next(self.tables, row, row, int(position) + 1, self.deltas[row])
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
    late: Any = None
    failed: dict[int, str] = field(default_factory=dict)


class Argmax:
    """The plain host sampler."""

    def admit(self, row: int, params: Any, prompt: Any, output: Any, *, request_id: str) -> RowSampling:
        return params

    def release(self, row: int) -> None: ...
    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Sample:
        return Sample(logits.argmax(-1).tolist())
