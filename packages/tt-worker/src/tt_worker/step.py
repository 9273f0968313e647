"""What the engine asks of one step, in plain values: the translation target of every engine adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tt_worker.media import Image


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that enters a row: new, or resumed after a preemption.

    prompt, output:  token ids; output is empty for a new request
    computed:        tokens already in the KV cache (prefix hit), tokens
    block_ids:       all its blocks, per KV cache group
    params:          the engine's sampling parameters, for the engine's host sampler
    ends_at:         prompt and output tokens after which the request is over, however it goes; None: not known
    images:          of its prompt, in their order
    """

    request_id: str
    prompt: list[int]
    output: list[int]
    computed: int
    block_ids: Sequence[Sequence[int]]
    params: Any
    lane: int = 0
    ends_at: int | None = None
    images: Sequence[Image] = ()


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One step.

    leaving:     requests that finished or were preempted: they leave their rows before anything else happens
    admissions:  requests that enter a row
    computed:    tokens scheduled before this step, for each scheduled request that is in its row already
    grown:       blocks to append for such requests, per KV cache group
    scheduled:   request id -> tokens to compute, in the engine's order
    """

    leaving: Iterable[str] = ()
    admissions: Sequence[Admission] = ()
    computed: Mapping[str, int] = field(default_factory=dict[str, int])
    grown: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict[str, Sequence[Sequence[int]]])
    scheduled: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step produced, request by request as `request_ids` has them.

    token_ids:  one token, or none for a request whose prompt is not complete
    late:       gives the logprobs in the engine's own form, one entry a request; None when nobody asked
    failed:     request id -> why it must end with an error; such a request has no token
    """

    request_ids: Sequence[str] = ()
    token_ids: Sequence[list[int]] = ()
    late: Callable[[], Any] | None = None
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def logprobs(self) -> Any:
        """The next step does without them, so they are worked out when they are asked for."""
        return None if self.late is None else self.late()


NOTHING = StepResult()
