"""Whether one request can be served. A refusal becomes HTTP 400; the engine never sees the request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What a request asks for.

    Attributes:
        pooling: it wants an embedding or a score, not text.
        prompt_logprobs: number of log probabilities asked for each prompt token; None for none.
        prompt_embeds: the prompt is given as embeddings.
        media: kinds of media in the prompt, such as ``image``.
    """

    pooling: bool = False
    prompt_logprobs: int | None = None
    prompt_embeds: bool = False
    media: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """One parameter that cannot be served, and the line that the client reads."""

    parameter: str
    message: str


SERVED_MEDIA = frozenset({"image"})


def refuse_request(request: RequestFacts) -> Refusal | None:
    """The first thing in ``request`` that no Tenstorrent model can do; None when it can be served."""
    if request.pooling:
        return Refusal("task", "pooling requests are not supported on Tenstorrent: ask for a completion")
    if request.prompt_logprobs is not None:
        return Refusal(
            "prompt_logprobs",
            f"prompt_logprobs={request.prompt_logprobs} is not supported on Tenstorrent: leave it unset; "
            "logprobs of generated tokens are available",
        )
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
    return None
