"""The host sampler of `tt_sampling.host` with vLLM's hooks and vLLM's result types."""

from collections.abc import Sequence

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import LogprobsLists

from tt_sampling.host.device_logprobs import device_logprobs
from tt_sampling.host.logprobs import Logprobs
from tt_sampling.host.sampler import HostSampler, LogprobsMode, Masks
from tt_sampling.late import Late
from tt_sampling.vllm.hooks import VllmHooks
from tt_sampling.vllm.translate import row_sampling


class FastSampler:
    """Our sampler behind the interface of `ReferenceSampler`."""

    def __init__(self, vllm_config: VllmConfig, capacity: int, vocab_size: int, is_pin_memory: bool) -> None:
        model_config = vllm_config.model_config
        mode = LogprobsMode(model_config.logprobs_mode) if model_config is not None else LogprobsMode.RAW_LOGPROBS
        self._sampler = HostSampler(vocab_size, mode)
        self._hooks = VllmHooks(vllm_config, capacity, is_pin_memory)

    def admit(
        self, row: int, params: SamplingParams, stream: int, prompt_token_ids: list[int], output_token_ids: list[int]
    ) -> bool:
        """A request takes a row. True when a custom logits processor may change its logits."""
        self._sampler.admit(row, row_sampling(params), stream, prompt_token_ids, output_token_ids)
        return self._hooks.admit(row, params, prompt_token_ids, output_token_ids)

    def release(self, row: int) -> None:
        """The row is free."""
        self._sampler.release(row)
        self._hooks.release(row)

    def sample(
        self, logits: Tensor, rows: Sequence[int], advance: Sequence[bool] | None, masks: Masks | None
    ) -> tuple[list[int], Late[LogprobsLists] | None]:
        """One token for each of `rows`, and the logprobs of these rows if any row asks."""
        hooks = self._hooks if self._hooks.active else None
        if hooks is not None:
            hooks.begin_step(rows, advance)
        sampled = self._sampler.sample(logits, rows, masks, hooks)
        late = sampled.late
        return sampled.tokens.tolist(), None if late is None else Late(lambda: logprobs_lists(late()))


def device_lists(
    token_ids: list[int], given: tuple[Tensor, Tensor | None], asked: Sequence[int | None]
) -> LogprobsLists:
    """The logprobs that a device computed, in vLLM's form. `given` and `asked` see `device_logprobs`."""
    return logprobs_lists(device_logprobs(torch.tensor(token_ids), *given, asked))


def logprobs_lists(logprobs: Logprobs) -> LogprobsLists:
    """The logprobs of a step in vLLM's form."""
    return LogprobsLists(
        logprob_token_ids=logprobs.ids.numpy(),
        logprobs=logprobs.values.numpy(),
        sampled_token_ranks=logprobs.ranks.numpy(),
    )
