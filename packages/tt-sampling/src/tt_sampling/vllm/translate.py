"""vLLM's sampling parameters in plain values."""

from vllm.sampling_params import SamplingParams

from tt_sampling.parameters import RowSampling


def row_sampling(params: SamplingParams, *, logits_processors: bool = False) -> RowSampling:
    """What a request asks of the sampler. `logits_processors`: custom code wants to see its logits."""
    return RowSampling(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        seed=params.seed,
        logprobs=params.logprobs,
        logprob_token_ids=tuple(params.logprob_token_ids or ()),
        min_tokens=params.min_tokens,
        stop_token_ids=frozenset(params.all_stop_token_ids),
        logit_bias=tuple((params.logit_bias or {}).items()),
        allowed_token_ids=tuple(params.allowed_token_ids or ()),
        bad_words=tuple(map(tuple, params.bad_words_token_ids or ())),
        structured=_constrained(params),
        logits_processors=logits_processors,
        thinking_budget=params.thinking_token_budget is not None,
    )


def _constrained(params: SamplingParams) -> bool:
    """Whether vLLM makes a grammar for the request: options alone constrain nothing."""
    asked = params.structured_outputs
    return asked is not None and not asked.all_constraints_none()
