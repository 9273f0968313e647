"""Whether one request can be served. A refusal becomes HTTP 400; the engine never sees the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tt_scheduler.blocks import BlockOutput

SAMPLED = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "extra_args",
        "frequency_penalty",
        "logit_bias",
        "logprob_token_ids",
        "logprobs",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "stop_token_ids",
        "structured_outputs",
        "temperature",
        "thinking_token_budget",
        "top_k",
        "top_p",
    }
)
"""Sampling parameters that the samplers of this plugin, or logits processors that they run, give their effect."""

AROUND = frozenset(
    {
        "detokenize",
        "flat_logprobs",
        "ignore_eos",
        "include_stop_str_in_output",
        "max_tokens",
        "n",
        "output_kind",
        "output_text_buffer_length",
        "repetition_detection",
        "skip_clone",
        "skip_reading_prefix_cache",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop",
        "stream_interval",
        "_all_stop_token_ids",
        "_bad_words_token_ids",
        "_eos_token_id",
        "_watermarking_skipped",
    }
)
"""Sampling parameters that vLLM gives their effect before or after the worker, and its own notes."""

REFUSED: Mapping[str, str] = {
    "prompt_logprobs": "logprobs of generated tokens are available",
    "prompt_logprob_token_ids": "logprobs of generated tokens are available",
    "prompt_logprob_start": "logprobs of generated tokens are available",
    "routed_experts_prompt_start": "the routing of experts is not returned",
    "trace_decode_token_ids": "every token is sampled",
    "watermarking": "the engine has no watermark",
}
"""Sampling parameters that have no effect here, with the rest of the line that their client reads."""


UNKNOWN_TO_BLOCKS = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "extra_args",
        "flat_logprobs",
        "logit_bias",
        "logprob_token_ids",
        "logprobs",
        "min_tokens",
        "n",
        "repetition_detection",
        "structured_outputs",
        "thinking_token_budget",
    }
)
"""Sampling parameters that mean nothing to a model that puts out whole blocks."""


@dataclass(frozen=True, slots=True)
class BlockLaunch:
    """What a launch with block output serves: blocks of ``width`` tokens in contexts of ``max_model_len``."""

    width: int
    max_model_len: int

    def refuse(self, request: RequestFacts) -> Refusal | None:
        """Source: tt-metal contract 1.12."""
        for name, value in request.chosen:
            if name in UNKNOWN_TO_BLOCKS:
                return Refusal(name, f"{name}={value!r} is not supported on Tenstorrent: {self._what} leave it unset")
        return self._refuse_length(request.prompt_tokens, request.max_tokens)

    def _refuse_length(self, prompt: int, wanted: int | None) -> Refusal | None:
        """Prompts fill whole tiles and answers whole blocks. Who asks for all that is left gets all that fits."""
        room = BlockOutput(self.width).room(prompt, self.max_model_len)
        if room < 1:
            return Refusal(
                "prompt",
                f"a prompt of {prompt} tokens leaves no room for a block: max_model_len is {self.max_model_len}; "
                f"{self._what} shorten the prompt",
            )
        if wanted is None or wanted <= room or prompt + wanted >= self.max_model_len:
            return None
        return Refusal(
            "max_tokens",
            f"max_tokens={wanted} does not fit behind a prompt of {prompt} tokens: allowed {room} or less, as "
            f"max_model_len is {self.max_model_len}; {self._what} ask for less",
        )

    @property
    def _what(self) -> str:
        return f"this model puts out blocks of {self.width} tokens;"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a request asks for.

    Attributes:
        pooling: it wants an embedding or a score, not text.
        task: which of them; None when it does not say.
        unserved: sampling parameters that were set although they have no effect here, with their values.
        prompt_embeds: the prompt is given as embeddings.
        media: kinds of media in the prompt, such as ``image``.
        prompt_tokens, max_tokens: tokens of the prompt, and asked for at most; None: no limit of its own.
        chosen: sampling parameters that differ from their default, with their values.
    """

    pooling: bool = False
    task: str | None = None
    unserved: tuple[tuple[str, object], ...] = ()
    prompt_embeds: bool = False
    media: frozenset[str] = frozenset()
    prompt_tokens: int = 0
    max_tokens: int | None = None
    chosen: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """One parameter that cannot be served, and the line that the client reads."""

    parameter: str
    message: str


SERVED_MEDIA = frozenset({"image"})
EMBEDDING = (None, "embed")


def refuse_request(request: RequestFacts, blocks: BlockLaunch | None = None, *, pools: bool = False) -> Refusal | None:
    """The first thing in ``request`` that no Tenstorrent model can do, or that this one, which puts out ``blocks`` or
    ``pools``, cannot; None when it can be served."""
    if request.pooling and not pools:
        return Refusal("task", "pooling requests are not supported on Tenstorrent by this model: ask for a completion")
    if request.pooling and request.task not in EMBEDDING:
        return Refusal("task", f"task={request.task} is not supported on Tenstorrent: allowed embed")
    for name, value in request.unserved:
        why = REFUSED.get(name, "it is new in this vLLM release, and the plugin gives it no effect")
        return Refusal(name, f"{name}={value!r} is not supported on Tenstorrent: leave it unset; {why}")
    if request.prompt_embeds:
        return Refusal(
            "prompt_embeds", "prompt_embeds is not supported on Tenstorrent: send the prompt as text or token ids"
        )
    unserved = sorted(request.media - SERVED_MEDIA)
    if unserved:
        return Refusal(
            "messages",
            f"{', '.join(unserved)} input is not supported on Tenstorrent: allowed {', '.join(sorted(SERVED_MEDIA))}",
        )
    return blocks.refuse(request) if blocks is not None and not request.pooling else None
