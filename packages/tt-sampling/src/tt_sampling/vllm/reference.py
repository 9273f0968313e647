"""vLLM's own sampler over this worker's rows: the reference path of `always_compat_sampling`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import LogprobsLists
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler

from tt_sampling.host.grammar import apply_bitmask
from tt_sampling.host.sampler import Masks
from tt_sampling.late import Late
from tt_sampling.parameters import RowSampling
from tt_sampling.seeds import draw_bits
from tt_sampling.vllm._compat import thinking_budget
from tt_sampling.vllm.processors import RowProcessors, admission, load_processors, removal
from tt_sampling.vllm.translate import row_sampling


@dataclass(slots=True)
class _Row:
    sampling: RowSampling = field(default_factory=lambda: RowSampling(temperature=0.0))
    stream: int = 0
    prompt: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)


class ReferenceSampler:
    """Samples with vLLM's `Sampler` and its processors. Right, not fast: every call is over the whole capacity."""

    def __init__(self, vllm_config: VllmConfig, capacity: int, vocab_size: int, is_pin_memory: bool) -> None:
        model_config = vllm_config.model_config
        self._sampler = Sampler(model_config.logprobs_mode) if model_config is not None else Sampler()
        self._vocab_size = vocab_size
        self._rows = [_Row() for _ in range(capacity)]
        self._processors = RowProcessors(load_processors(vllm_config, is_pin_memory), capacity)
        self._thinking = thinking_budget(vllm_config, capacity, is_pin_memory)

    def admit(
        self, row: int, params: SamplingParams, stream: int, prompt_token_ids: list[int], output_token_ids: list[int]
    ) -> bool:
        """A request takes a row. True when a custom logits processor may change its logits."""
        self._rows[row] = _Row(row_sampling(params), stream, prompt_token_ids, output_token_ids)
        if self._thinking is not None:
            self._thinking.sync_batch(admission(len(self._rows), row, params, prompt_token_ids, output_token_ids))
        return self._processors.admit(row, params, prompt_token_ids, output_token_ids)

    def release(self, row: int) -> None:
        """The row is free."""
        self._rows[row] = _Row()
        if self._thinking is not None:
            self._thinking.sync_batch(removal(len(self._rows), row))
        self._processors.release(row)

    def sample(
        self, logits: Tensor, rows: Sequence[int], advance: Sequence[bool] | None, masks: Masks | None
    ) -> tuple[list[int], Late[LogprobsLists] | None]:
        """One token for each of `rows`, and the logprobs of these rows if any row asks."""
        if masks is not None:
            apply_bitmask(logits, masks.positions, masks.words)
        self._processors.begin_step({row: row for i, row in enumerate(rows) if advance is None or advance[i]})
        index = torch.tensor(rows, dtype=torch.int64)
        wide = logits.new_zeros(len(self._rows), logits.shape[1]).index_copy_(0, index, logits)
        output = self._sampler(wide, self._metadata(rows))
        tokens = output.sampled_token_ids[index, 0].tolist()
        found = output.logprobs_tensors
        if found is None:
            return tokens, None
        lists = LogprobsLists(
            logprob_token_ids=found.logprob_token_ids[index].numpy(),
            logprobs=found.logprobs[index].numpy(),
            sampled_token_ranks=found.selected_token_ranks[index].numpy(),
        )
        return tokens, Late.of(lists)

    def _metadata(self, rows: Sequence[int]) -> SamplingMetadata:
        asked = [row.sampling for row in self._rows]
        random = [row for row in rows if not asked[row].greedy]
        logprobs = [self._vocab_size if n < 0 else n for row in rows if (n := asked[row].logprobs) is not None]
        chosen = {row: list(ids) for row in rows if (ids := asked[row].logprob_token_ids)}
        penalised = any(asked[row].penalised for row in rows)
        return SamplingMetadata(
            temperature=_column([0.0 if row.greedy else row.temperature for row in asked]) if random else None,
            all_greedy=not random,
            all_random=len(random) == len(self._rows),
            top_p=_column([row.top_p for row in asked]) if any(asked[row].top_p < 1.0 for row in random) else None,
            top_k=self._top_k(asked) if any(0 < asked[row].top_k < self._vocab_size for row in random) else None,
            generators={row: self._generator(row) for row in random},
            max_num_logprobs=max(logprobs) if logprobs else None,
            no_penalties=not penalised,
            prompt_token_ids=self._prompts() if penalised else None,
            frequency_penalties=_column([row.frequency_penalty for row in asked]),
            presence_penalties=_column([row.presence_penalty for row in asked]),
            repetition_penalties=_column([row.repetition_penalty for row in asked]),
            output_token_ids=[row.output for row in self._rows],
            allowed_token_ids_mask=self._forbidden(asked) if any(asked[r].allowed_token_ids for r in rows) else None,
            bad_words_token_ids={row: [list(w) for w in asked[row].bad_words] for row in rows if asked[row].bad_words},
            logitsprocs=self._processors.staged,
            logprob_token_ids=chosen or None,
            thinking_budget_state_holder=self._thinking,
        )

    def _generator(self, row: int) -> torch.Generator:
        bits = draw_bits(self._rows[row].stream, len(self._rows[row].output))
        return torch.Generator().manual_seed(bits >> 1)

    def _top_k(self, asked: Sequence[RowSampling]) -> Tensor:
        limited = [row.top_k if 0 < row.top_k < self._vocab_size else self._vocab_size for row in asked]
        return torch.tensor(limited, dtype=torch.int32)

    def _prompts(self) -> Tensor:
        prompts = [torch.tensor(row.prompt, dtype=torch.int64) for row in self._rows]
        return pad_sequence(prompts, batch_first=True, padding_value=self._vocab_size)

    def _forbidden(self, asked: Sequence[RowSampling]) -> Tensor:
        mask = torch.zeros(len(asked), self._vocab_size, dtype=torch.bool)
        for i, row in enumerate(asked):
            if row.allowed_token_ids:
                mask[i] = True
                mask[i, list(row.allowed_token_ids)] = False
        return mask


def _column(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
