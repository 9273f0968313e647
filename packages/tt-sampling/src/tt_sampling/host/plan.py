"""What the rows of a batch need, worked out once and used until the batch or a request changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tt_sampling.host.blocks import first_of
from tt_sampling.host.edits import Edit, Line, edits
from tt_sampling.host.history import History
from tt_sampling.host.logprobs import Wanted, wanted
from tt_sampling.host.noise import base
from tt_sampling.host.penalties import Penalties
from tt_sampling.host.randomness import Limit, Randomness
from tt_sampling.parameters import RowSampling

_FEWEST = 64
"""Candidates a restricted row looks at first."""

_SPARE = 8
"""Candidates beyond top_k, so that a few tokens as good as the last one do not need a second look."""


class Request:
    """One admitted request, as the host sampler sees it. `output` is the live list of its emitted tokens."""

    def __init__(
        self,
        sampling: RowSampling,
        vocab_size: int,
        stream: int,
        prompt: Sequence[int],
        output: Sequence[int],
    ) -> None:
        self.sampling = sampling
        self.output = output
        self.base = base(stream)
        self.history = History(sampling, vocab_size, prompt, output) if sampling.penalised else None


@dataclass(frozen=True, slots=True)
class Draws:
    """The random rows of a batch, groups of rows drawn alike one after the other.

    bases: int64 [r], see `noise.base`;  outputs: live lists, whose lengths are the indices of the draws
    """

    groups: Sequence[Randomness]
    bases: Tensor
    outputs: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to sample one batch layout.

    greedy: int64 [g], lines of the logits; None when no row is greedy
    fine:   some row looks at candidates
    """

    rows: Sequence[int]
    greedy: Tensor | None
    draws: Draws | None
    fine: bool
    edits: Sequence[Edit]
    penalties: Penalties | None
    logprobs: Wanted | None


def only_the_best(sampling: RowSampling) -> bool:
    """True for a row whose token is the argmax: greedy, or top_k 1 (deterministic on host and device alike)."""
    return sampling.greedy or sampling.top_k == 1


def plan(rows: Sequence[int], requests: Sequence[Request], vocab_size: int) -> Plan:
    """The plan for logits whose line i belongs to requests[i]."""
    greedy = [i for i, request in enumerate(requests) if only_the_best(request.sampling)]
    penalised = [(i, h) for i, request in enumerate(requests) if (h := request.history) is not None]
    lines = [Line(i, request.sampling, request.output) for i, request in enumerate(requests)]
    draws = _draws(requests, vocab_size) if len(greedy) < len(requests) else None
    return Plan(
        rows=tuple(rows),
        greedy=torch.tensor(greedy) if greedy else None,
        draws=draws,
        fine=draws is not None and any(group.limit is not Limit.NONE for group in draws.groups),
        edits=edits(lines, vocab_size),
        penalties=Penalties([i for i, _ in penalised], [h for _, h in penalised], vocab_size) if penalised else None,
        logprobs=wanted([request.sampling for request in requests], vocab_size),
    )


def _draws(requests: Sequence[Request], vocab_size: int) -> Draws:
    alike: dict[tuple[Limit, int], list[int]] = {}
    for i, request in enumerate(requests):
        if not only_the_best(request.sampling):
            limit = limit_of(request.sampling, vocab_size)
            alike.setdefault((limit, candidates(request.sampling, limit)), []).append(i)
    positions = [i for some in alike.values() for i in some]
    chosen = [requests[i] for i in positions]
    return Draws(
        groups=[_group(*kind, some, [requests[i].sampling for i in some]) for kind, some in alike.items()],
        bases=torch.tensor([request.base for request in chosen], dtype=torch.int64),
        outputs=[request.output for request in chosen],
    )


def limit_of(sampling: RowSampling, vocab_size: int) -> Limit:
    """What tells that a random row's candidates are complete."""
    if 0 < sampling.top_k < vocab_size:
        return Limit.TOP_K
    if sampling.min_p > 0.0:
        return Limit.MIN_P
    return Limit.TOP_P if sampling.top_p < 1.0 else Limit.NONE


def candidates(sampling: RowSampling, limit: Limit) -> int:
    """How many candidates a random row looks at first: a power of two, so that rows alike go together."""
    least = max(sampling.top_k + _SPARE, _FEWEST) if limit is Limit.TOP_K else _FEWEST
    return 1 << (least - 1).bit_length()


def _group(limit: Limit, count: int, positions: Sequence[int], rows: Sequence[RowSampling]) -> Randomness:
    def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype).unsqueeze(1)

    return Randomness(
        limit=limit,
        positions=torch.tensor(positions),
        first=first_of(positions),
        scale=column([1.0 / row.temperature for row in rows], torch.float32),
        kth=column([row.top_k - 1 for row in rows], torch.int64) if limit is Limit.TOP_K else None,
        top_p=column([row.top_p for row in rows], torch.float64),
        nucleus=any(row.top_p < 1.0 for row in rows),
        min_p=column([row.min_p for row in rows], torch.float64) if any(row.min_p > 0.0 for row in rows) else None,
        count=count,
    )
