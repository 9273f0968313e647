"""Logits processors: vLLM's classes, fed with this worker's stable rows."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
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
        self._processors = [OneRowAtATime(p) if isinstance(p, AdapterLogitsProcessor) else p for p in processors]
        self.staged = LogitsProcessors(self._processors)

    def __bool__(self) -> bool:
        return bool(self._processors)

    def admit(self, row: int, params: SamplingParams, prompt_token_ids: list[int], output_token_ids: list[int]) -> bool:
        """A request takes a row. True when some custom processor may change its logits.

        A per-request processor says so itself; any other one is taken to want every row.
        """
        self._update(admission(self._capacity, row, params, prompt_token_ids, output_token_ids))
        custom = (p for p in self._processors if not isinstance(p, BUILTIN))
        return any(not isinstance(p, OneRowAtATime) or p.wants(row) for p in custom)

    def release(self, row: int) -> None:
        """The row is free."""
        self._update(removal(self._capacity, row))

    def begin_step(self, lines: Mapping[int, int]) -> None:
        """New tokens may have come. `lines`: the line of the logits of each row of this step that advances."""
        for processor in self._processors:
            if isinstance(processor, OneRowAtATime):
                processor.lines = lines
        self._update(None)

    def _update(self, update: BatchUpdate | None) -> None:
        for processor in self._processors:
            processor.update_state(update)


def admission(
    capacity: int, row: int, params: SamplingParams, prompt_token_ids: list[int], output_token_ids: list[int]
) -> BatchUpdate:
    """vLLM's word for: this request takes this row."""
    added = [(row, params, prompt_token_ids, output_token_ids)]
    return BatchUpdate(batch_size=capacity, removed=[], added=added, moved=[])


def removal(capacity: int, row: int) -> BatchUpdate:
    """vLLM's word for: this row is free."""
    return BatchUpdate(batch_size=capacity, removed=[row], added=[], moved=[])


class OneRowAtATime(LogitsProcessor):
    """A per-request processor that is called for the rows of the step only, wherever their logits are.

    vLLM's own `apply` would call it for every admitted row, and one that counts its calls would run ahead.
    """

    def __init__(self, processor: AdapterLogitsProcessor) -> None:
        self._processor = processor
        self.lines: Mapping[int, int] = {}

    def wants(self, row: int) -> bool:
        return row in self._processor.req_info

    def is_argmax_invariant(self) -> bool:
        return self._processor.is_argmax_invariant()

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self._processor.update_state(batch_update)

    def apply(self, logits: Tensor) -> Tensor:
        for row, process in self._processor.req_info.items():
            line = self.lines.get(row)
            if line is not None:
                logits[line] = process(logits[line])
        return logits
