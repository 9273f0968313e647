"""What a request asks of the sampler, and the object a model's device sampler takes."""

from dataclasses import dataclass, fields
from typing import Any

GREEDY_BELOW = 1e-5
"""A temperature below this means argmax (vLLM: `sampler._SAMPLING_EPS`)."""


# No slots: the model side rebuilds this object from its fields and may read `__dict__`.
@dataclass(frozen=True)
class TTSamplingParams:
    """Parameters of one device-sampled step: one python list per field, one entry per row.

    temperature:        0.0 means greedy
    top_k, top_p:       top_k is 1..vocab_size
    presence_penalty, frequency_penalty, repetition_penalty: neutral at 0, 0 and 1
    seed:               signed 64 bit, None for an unseeded row
    num_logprobs:       -2 none, 0 the sampled token's only, n the top n
    enable_log_probs:   num_logprobs >= 0

    The field set is closed: models rebuild their own class from it. Source: tt-metal contract 1.8.
    """

    temperature: list[float]
    top_k: list[int]
    top_p: list[float]
    presence_penalty: list[float] | float = 0.0
    frequency_penalty: list[float] | float = 0.0
    repetition_penalty: list[float] | float = 1.0
    seed: list[int | None] | int = 0
    num_logprobs: list[int] | None = None
    enable_log_probs: list[bool] | None = None


def one_row(params: TTSamplingParams | None, i: int) -> TTSamplingParams | None:
    """The parameters of row i alone."""
    if params is None:
        return None
    values: dict[str, Any] = {field.name: getattr(params, field.name) for field in fields(params)}
    return TTSamplingParams(**{k: _pick(v, i) for k, v in values.items()})


def _pick(value: Any, i: int) -> Any:
    return [value[i]] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class RowSampling:
    """What one request asks of the sampler, in plain values. The defaults ask for nothing but a draw.

    top_k:              0 or less, or the vocabulary size and more: no limit
    seed:               None for an unseeded request
    logprobs:           None no, 0 the sampled token's only, n the top n as well, -1 the whole vocabulary
    logprob_token_ids:  logprobs of exactly these tokens
    min_tokens:         `stop_token_ids` are forbidden before this many tokens are out
    logit_bias:         (token id, addend) pairs
    allowed_token_ids:  empty: every token
    bad_words:          token sequences that must not be completed
    structured:         a grammar decides which tokens are legal
    logits_processors:  custom code wants to see this row's logits
    thinking_budget:    the number of thinking tokens is limited
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    structured: bool = False
    logits_processors: bool = False
    thinking_budget: bool = False

    @property
    def greedy(self) -> bool:
        """True when the token is the argmax: no draw, and top-k, top-p and min-p change nothing."""
        return self.temperature < GREEDY_BELOW

    @property
    def penalised(self) -> bool:
        """True when the token history changes the logits."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0

    @property
    def wants_logprobs(self) -> bool:
        """True when the answer carries log probabilities; `logprobs=0` is a request for the sampled token's."""
        return self.logprobs is not None or bool(self.logprob_token_ids)
