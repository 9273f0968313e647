"""What the worker knows of one request between its admission and its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tt_worker.media import Image

P = TypeVar("P")


@dataclass(slots=True)
class RequestState(Generic[P]):
    """One tenancy of a row. A preempted request that returns gets a new state: a late token of the old one cannot
    touch it.

    prompt:       token ids of the prompt
    output:       token ids generated and read back so far; only `RowSamplers.record` appends
    prefill_end:  tokens to prefill in this tenancy: the prompt, or prompt and output so far after a preemption
    computed:     tokens whose KV is written once every submitted step has run
    params:       the engine's sampling parameters, opaque here
    logprobs:     top logprobs asked for, 0 for the sampled token's only, None for none
    failure:      why it cannot go on, once it cannot
    ends_at:      prompt and output tokens after which it is over; None: not known
    images:       of its prompt, in their order
    rope_delta:   rotary less token position of what follows its prompt, as the model's last prefill said it
    """

    request_id: str
    row: int
    prompt: list[int]
    output: list[int]
    prefill_end: int
    computed: int
    params: P
    penalised: bool = False
    logprobs: int | None = None
    failure: str | None = None
    ends_at: int | None = None
    images: Sequence[Image] = ()
    rope_delta: int = 0
    alive: bool = field(default=True)

    @property
    def over(self) -> bool:
        """Its last token is computed or in flight: it is not scheduled again."""
        return self.ends_at is not None and self.computed + 1 >= self.ends_at

    @property
    def prefilling(self) -> bool:
        """More of the tenancy's initial tokens remain to be computed.

        Deciding by what was known at admission is exact for all three traps: a steady decode (#66), a replay beyond
                                                                              the prompt
        (#52) and a chunk that ends at the prompt's end; the difference of two counters is not.
        """
        return self.computed < self.prefill_end

    def tokens(self, start: int, end: int) -> list[int]:
        """Token ids of the positions [start, end)."""
        split = len(self.prompt)
        if end <= split:
            return list(self.prompt[start:end])
        if start >= split:
            return self.output[start - split : end - split]
        return [*self.prompt[start:], *self.output[: end - split]]

    def token_at(self, position: int) -> int:
        split = len(self.prompt)
        return self.prompt[position] if position < split else self.output[position - split]
