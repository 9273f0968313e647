"""Logits processors: vLLM's classes, fed with this worker's stable rows."""

from collections.abc import Iterable

import torch
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import (
    AdapterLogitsProcessor,
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessor,
    LogitsProcessors,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
    build_logitsprocs,
)

BUILTIN = (MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)


def load_processors(vllm_config: VllmConfig, is_pin_memory: bool) -> list[LogitsProcessor]:
    """vLLM's built-in processors and the configured ones, in vLLM's order."""
    custom = vllm_config.model_config.logits_processors if vllm_config.model_config is not None else None
    return list(build_logitsprocs(vllm_config, torch.device("cpu"), is_pin_memory, False, tuple(custom or ())).all)


class RowProcessors:
    """Processors that know each request by its row, which never changes while the request lives."""

    def __init__(self, processors: Iterable[LogitsProcessor], capacity: int) -> None:
        self._capacity = capacity
        self.last_update: BatchUpdate | None = None
        self._processors = [_PresentRows(p) if isinstance(p, AdapterLogitsProcessor) else p for p in processors]

    def admit(self, row: int, params: SamplingParams, prompt_token_ids: list[int], output_token_ids: list[int]) -> bool:
        """A request takes a row. True when some processor may change its logits.

        A per-request processor says so itself; any other one is taken to want every row.
        """
        added = [(row, params, prompt_token_ids, output_token_ids)]
        self._update(BatchUpdate(batch_size=self._capacity, removed=[], added=added, moved=[]))
        return any(not isinstance(p, _PresentRows) or p.wants(row) for p in self._processors)

    def release(self, row: int) -> None:
        """The row is free."""
        self._update(BatchUpdate(batch_size=self._capacity, removed=[row], added=[], moved=[]))

    def for_step(self, rows: Iterable[int]) -> LogitsProcessors:
        """The processors, ready for a step that samples `rows`; they take logits of the whole capacity."""
        present = frozenset(rows)
        for processor in self._processors:
            if isinstance(processor, _PresentRows):
                processor.present = present
        self._update(None)
        return LogitsProcessors(self._processors)

    def _update(self, update: BatchUpdate | None) -> None:
        self.last_update = update
        for processor in self._processors:
            processor.update_state(update)


class _PresentRows(LogitsProcessor):
    """A per-request processor that is called for the rows of the step only.

    vLLM's own `apply` would call it for every admitted row, and one that counts its calls would run ahead.
    """

    def __init__(self, processor: AdapterLogitsProcessor) -> None:
        self._processor = processor
        self.present: frozenset[int] = frozenset()

    def wants(self, row: int) -> bool:
        return row in self._processor.req_info

    def is_argmax_invariant(self) -> bool:
        return self._processor.is_argmax_invariant()

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self._processor.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, process in self._processor.req_info.items():
            if row in self.present:
                logits[row] = process(logits[row])
        return logits
