"""The host sampler as the worker uses it: vLLM's parameters in, tokens and vLLM's logprobs out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import LogprobsLists

from tt_sampling.host.sampler import Masks
from tt_sampling.late import Late
from tt_sampling.parameters import RowSampling
from tt_sampling.seeds import Streams
from tt_sampling.vllm.fast import FastSampler, device_lists
from tt_sampling.vllm.reference import ReferenceSampler
from tt_sampling.vllm.translate import row_sampling


class Grammar(NamedTuple):
    """The masks of one step; a plain (bitmask, index) tuple will do.

    bitmask: int32 [k, ceil(V / 32)], bit 1 allows a token;  index: row -> its line of `bitmask`
    """

    bitmask: np.ndarray
    index: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class HostSample:
    """token_ids: one per row, in the order of the call;  late: the logprobs of the same rows, None when no row asks.

    failed: position in the call -> why this request cannot go on. Its token must not reach the client.
    The next step needs the tokens alone, so logprobs are worked out when they are asked for.
    """

    token_ids: list[int]
    late: Late[LogprobsLists] | None
    failed: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def logprobs(self) -> LogprobsLists | None:
        return None if self.late is None else self.late()


class HostSampling:
    """Samples rows on the host. Rows are stable: a request keeps its row until it is released.

    always_compat: every step goes through vLLM's own sampler, as a debugging reference.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        capacity: int,
        vocab_size: int,
        is_pin_memory: bool = False,
        *,
        always_compat: bool = False,
    ) -> None:
        sampler = ReferenceSampler if always_compat else FastSampler
        self._sampler = sampler(vllm_config, capacity, vocab_size, is_pin_memory)
        self._vocab_size = vocab_size
        self._streams = Streams(*_entropy(vllm_config))
        self._structured: dict[int, str] = {}

    def admit(
        self,
        row: int,
        params: SamplingParams,
        prompt_token_ids: list[int] | None,
        output_token_ids: list[int],
        *,
        request_id: str = "",
    ) -> RowSampling:
        """A request takes a row, new or resumed.

        output_token_ids: the worker's live list of accepted tokens, those sampled on the device included.
        Returns the request in plain values, for placement and for the device parameters.
        """
        stream = self._streams.of(params.seed)
        touched = self._sampler.admit(row, params, stream, prompt_token_ids or [], output_token_ids)
        sampling = row_sampling(params, logits_processors=touched)
        self._structured.pop(row, None)
        if sampling.structured:
            self._structured[row] = request_id
        return sampling

    def release(self, row: int) -> None:
        """The row is free."""
        self._sampler.release(row)
        self._structured.pop(row, None)

    def sample(
        self,
        logits: torch.Tensor,
        rows: Sequence[int],
        *,
        advance: Sequence[bool] | None = None,
        grammar: Grammar | tuple[np.ndarray, Mapping[int, int]] | None = None,
    ) -> HostSample:
        """One token per row. `logits` may be overwritten.

        logits:  float32 [n, V] or wider, line i belongs to rows[i]
        advance: False for a prompt chunk that is not the last: its token means nothing and nothing advances
        A structured row that advances without a mask fails, alone.
        """
        masks = None if grammar is None else Grammar(*grammar)
        failed = self._unmasked(rows, advance, masks) if self._structured else {}
        logits = logits[:, : self._vocab_size].float().contiguous()
        token_ids, late = self._sampler.sample(logits, rows, advance, _masks(rows, masks))
        return HostSample(token_ids, late, failed)

    def device_logprobs(
        self, token_ids: list[int], given: tuple[torch.Tensor, torch.Tensor | None], asked: Sequence[int | None]
    ) -> LogprobsLists:
        """Logprobs that the device computed, in vLLM's form.

        given: float [n] of the sampled tokens and None, or float and int [n, m] of the best candidates and their ids
        asked: logprobs of each request, None for none
        """
        return device_lists(token_ids, given, asked)

    def _unmasked(self, rows: Sequence[int], advance: Sequence[bool] | None, grammar: Grammar | None) -> dict[int, str]:
        """Structured rows that nothing constrains, by position, with the line that the log gets."""
        masked = grammar.index if grammar is not None else {}
        return {
            i: f"request {self._structured[row]!r} (row {row}) has structured output but no grammar mask came with "
            "this step; it cannot go on, because its answer would be unconstrained"
            for i, row in enumerate(rows)
            if row in self._structured and row not in masked and (advance is None or advance[i])
        }


def _masks(rows: Sequence[int], grammar: Grammar | None) -> Masks | None:
    """The masks of this step's rows, in the order of the logits."""
    if grammar is None:
        return None
    positions = [i for i, row in enumerate(rows) if row in grammar.index]
    if not positions:
        return None
    # Indexing copies: a mask that came from another process may be read-only memory.
    words = grammar.bitmask[[grammar.index[rows[i]] for i in positions]]
    return Masks(torch.tensor(positions), torch.from_numpy(words))


def _entropy(vllm_config: VllmConfig) -> tuple[int, int]:
    """What unseeded streams of this launch start from: the engine's seed and the data-parallel rank."""
    model_config = vllm_config.model_config
    seed = 0 if model_config is None else model_config.seed
    return seed, vllm_config.parallel_config.data_parallel_rank
