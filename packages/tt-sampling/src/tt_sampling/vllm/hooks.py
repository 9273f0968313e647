"""vLLM's foreign code between the stages of the host sampler: custom logits processors and thinking budgets."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessor

from tt_sampling.vllm._compat import thinking_budget
from tt_sampling.vllm.processors import BUILTIN, OneRowAtATime, RowProcessors, admission, load_processors, removal


class VllmHooks:
    """Runs custom processors and the thinking budget on the rows that want them, at vLLM's places in the order.

    A class that works on whole batches gets logits of the whole capacity, each request at its row, others zero.
    """

    def __init__(self, vllm_config: VllmConfig, capacity: int, is_pin_memory: bool) -> None:
        custom = [p for p in load_processors(vllm_config, is_pin_memory) if not isinstance(p, BUILTIN)]
        self._capacity = capacity
        self._processors = RowProcessors(custom, capacity)
        self._thinking = thinking_budget(vllm_config, capacity, is_pin_memory)
        self._outputs: list[list[int]] = [[] for _ in range(capacity)]

    @property
    def active(self) -> bool:
        """True when there is something to run."""
        return bool(self._processors) or (self._thinking is not None and self._thinking.has_tracked_requests())

    def admit(self, row: int, params: SamplingParams, prompt_token_ids: list[int], output_token_ids: list[int]) -> bool:
        """A request takes a row. True when a custom processor may change its logits."""
        self._outputs[row] = output_token_ids
        if self._thinking is not None:
            self._thinking.sync_batch(admission(self._capacity, row, params, prompt_token_ids, output_token_ids))
        return self._processors.admit(row, params, prompt_token_ids, output_token_ids)

    def release(self, row: int) -> None:
        """The row is free."""
        self._outputs[row] = []
        if self._thinking is not None:
            self._thinking.sync_batch(removal(self._capacity, row))
        self._processors.release(row)

    def begin_step(self, rows: Sequence[int], advance: Sequence[bool] | None) -> None:
        """New tokens may have come; rows that do not advance are not shown to per-request processors."""
        self._processors.begin_step({row: i for i, row in enumerate(rows) if advance is None or advance[i]})

    def before_penalties(self, logits: Tensor, rows: Sequence[int]) -> None:
        for processor in self._processors.staged.non_argmax_invariant:
            self._run(processor, logits, rows)

    def after_penalties(self, logits: Tensor, rows: Sequence[int]) -> None:
        holder = self._thinking
        if holder is None or not holder.has_tracked_requests():
            return
        holder.update_state(self._outputs, None, None)
        self._at_rows(lambda wide: holder.apply_to_logits(wide, False, None), logits, rows)

    def wants_scaled(self) -> bool:
        return bool(self._processors.staged.argmax_invariant)

    def scaled(self, logits: Tensor, rows: Sequence[int]) -> None:
        for processor in self._processors.staged.argmax_invariant:
            self._run(processor, logits, rows)

    def _run(self, processor: LogitsProcessor, logits: Tensor, rows: Sequence[int]) -> None:
        if isinstance(processor, OneRowAtATime):
            processor.apply(logits)
        else:
            self._at_rows(processor.apply, logits, rows)

    def _at_rows(self, change: Callable[[Tensor], Tensor], logits: Tensor, rows: Sequence[int]) -> None:
        index = torch.tensor(rows)
        wide = logits.new_zeros(self._capacity, logits.shape[1]).index_copy_(0, index, logits)
        torch.index_select(change(wide), 0, index, out=logits)
