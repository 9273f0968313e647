"""Changes of single logits: allowed ids, bad words, min_tokens and logit_bias.

What does not depend on the output so far is turned into flat indices once per batch layout, so that a step is a few
indexed writes. Each edit works in place on contiguous float32 logits [n, V].
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tt_sampling.parameters import RowSampling

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of one batch layout. position: its line of the logits;  output: its live list of emitted tokens."""

    position: int
    sampling: RowSampling
    output: Sequence[int]


class Edit(Protocol):
    """One kind of edit for all rows of a batch layout."""

    def apply(self, logits: Tensor) -> None: ...


def edits(lines: Sequence[Line], vocab_size: int) -> list[Edit]:
    """The edits these rows need, in vLLM's order (`Sampler.apply_logits_processors`)."""
    found: list[Edit] = []
    if some := [line for line in lines if line.sampling.allowed_token_ids]:
        found.append(AllowedTokens(some, vocab_size))
    if some := [line for line in lines if line.sampling.bad_words]:
        found.append(BadWords(some, vocab_size))
    if some := [line for line in lines if line.sampling.min_tokens > len(line.output) and line.sampling.stop_token_ids]:
        found.append(MinTokens(some, vocab_size))
    if some := [line for line in lines if line.sampling.logit_bias]:
        found.append(LogitBias(some, vocab_size))
    return found


def _flat(pairs: Iterable[tuple[int, int]], vocab_size: int) -> Tensor:
    """Indices into flattened logits of (position, token) pairs: int64."""
    return torch.tensor([position * vocab_size + token for position, token in pairs], dtype=torch.int64)


class AllowedTokens:
    """Only the allowed tokens keep their logits."""

    def __init__(self, lines: Sequence[Line], vocab_size: int) -> None:
        self._positions = torch.tensor([line.position for line in lines])
        pairs = ((line.position, token) for line in lines for token in line.sampling.allowed_token_ids)
        self._allowed = _flat(pairs, vocab_size)

    def apply(self, logits: Tensor) -> None:
        kept = logits.view(-1).take(self._allowed)
        logits.index_fill_(0, self._positions, NEVER)
        logits.view(-1).put_(self._allowed, kept)


class BadWords:
    """No token may complete a bad word. Words are found by the token that comes just before their last one."""

    def __init__(self, lines: Sequence[Line], vocab_size: int) -> None:
        self._vocab_size = vocab_size
        single = ((line.position, word[0]) for line in lines for word in line.sampling.bad_words if len(word) == 1)
        self._always = _flat(single, vocab_size)
        self._longer = [(line, after) for line in lines if (after := _by_last_but_one(line.sampling.bad_words))]

    def apply(self, logits: Tensor) -> None:
        flat = logits.view(-1)
        flat.index_fill_(0, self._always, NEVER)
        now = [(line.position, last) for line, after in self._longer for last in _completions(after, line.output)]
        if now:
            flat.index_fill_(0, _flat(now, self._vocab_size), NEVER)


def _by_last_but_one(words: Iterable[tuple[int, ...]]) -> dict[int, list[tuple[list[int], int]]]:
    after: dict[int, list[tuple[list[int], int]]] = {}
    for word in words:
        if len(word) > 1:
            after.setdefault(word[-2], []).append((list(word[:-1]), word[-1]))
    return after


def _completions(after: dict[int, list[tuple[list[int], int]]], output: Sequence[int]) -> list[int]:
    if not output:
        return []
    return [last for prefix, last in after.get(output[-1], ()) if list(output[-len(prefix) :]) == prefix]


class MinTokens:
    """No stop token before `min_tokens` tokens are out.

    A structured row whose mask leaves nothing but stop tokens keeps them, as vLLM has it from 0.29 on: an impossible
    minimum must not turn into a random token.
    """

    def __init__(self, lines: Sequence[Line], vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._lines = lines
        self._lay_out()

    def _lay_out(self) -> None:
        free, masked = self._stops(structured=False), self._stops(structured=True)
        self._stop = _flat(free + masked, self._vocab_size)
        self._masked = _flat(masked, self._vocab_size)
        self._masked_positions = torch.tensor([position for position, _ in masked], dtype=torch.int64)

    def _stops(self, *, structured: bool) -> list[tuple[int, int]]:
        lines = [line for line in self._lines if line.sampling.structured is structured]
        return [(line.position, token) for line in lines for token in line.sampling.stop_token_ids]

    def apply(self, logits: Tensor) -> None:
        left = [line for line in self._lines if len(line.output) < line.sampling.min_tokens]
        if len(left) != len(self._lines):
            self._lines = left
            self._lay_out()
        flat = logits.view(-1)
        before = flat.take(self._masked)
        flat.index_fill_(0, self._stop, NEVER)
        if before.numel():
            dead = logits.index_select(0, self._masked_positions).amax(-1) == NEVER
            flat.put_(self._masked[dead], before[dead])


class LogitBias:
    """Adds a number to single logits."""

    def __init__(self, lines: Sequence[Line], vocab_size: int) -> None:
        self._at = _flat(
            ((line.position, token) for line in lines for token, _ in line.sampling.logit_bias), vocab_size
        )
        self._bias = torch.tensor([bias for line in lines for _, bias in line.sampling.logit_bias])

    def apply(self, logits: Tensor) -> None:
        logits.view(-1).index_add_(0, self._at, self._bias)
