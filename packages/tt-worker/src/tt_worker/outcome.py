"""What a model call returned, whatever its shape, as tokens or logits of the rows in question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from tt_worker.methods import AdapterError


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exactly one of tokens and logits is set.

    tokens:    int64 [n]
    logits:    float [n, V], the last position of each row
    logprobs:  as the model gave them, None without device logprobs: [n] of the sampled tokens, or ([n, 32], [n, 32])
               lists
    rope_deltas: one a row, of a prefill of a model with rotary positions in three axes
    width:     tokens of each row; above 1 tokens is int64 [n * width], row by row
    """

    tokens: torch.Tensor | None
    logits: torch.Tensor | None
    logprobs: Any = None
    rope_deltas: list[int] | None = None
    width: int = 1


def is_host_result(value: Any) -> bool:
    """Whether the model answered with host tensors although it was asked not to read back (tt-metal contract 1.6)."""
    if isinstance(value, tuple):
        members = cast("tuple[object, ...]", value)
        return bool(members) and all(member is None or isinstance(member, torch.Tensor) for member in members)
    return isinstance(value, torch.Tensor)


def token_ids(tokens: torch.Tensor) -> list[int]:
    """One conversion for a whole batch."""
    return cast("list[int]", tokens.tolist())  # pyright: ignore[reportUnknownMemberType]


def outcome_of(value: Any, *, rows: int, vocab_size: int, label: str) -> Outcome:
    """Classify a host result by its last dimension, not by what was asked: some adapters ignore a request for tokens.

    Accepted (contract 1.5, 1.7): logits [n, V], [n, 1, V] or [n, S, V] (the last position counts); tokens of any
    shape with n
    elements; either alone or as the first of a pair.
    """
    members = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
    result: Any = members[0] if members else None
    logprobs: Any = members[1] if len(members) == 2 else None
    if not isinstance(result, torch.Tensor):
        raise AdapterError(f"{label} returned {type(result).__name__}: tt-metal contract 1.5 and 1.7 want tensors")
    if result.dim() >= 2 and result.shape[-1] == vocab_size and result.is_floating_point():
        logits = result[:, -1, :] if result.dim() == 3 else result
        if logits.dim() != 2 or logits.shape[0] < rows:
            raise AdapterError(f"{label} returned logits of shape {tuple(result.shape)} for {rows} rows")
        return Outcome(None, logits, None)
    if result.numel() < rows or result.is_floating_point():
        raise AdapterError(
            f"{label} returned {tuple(result.shape)} {result.dtype} for {rows} rows and a vocabulary of {vocab_size}: "
            "neither one token a row nor logits (tt-metal contract 1.5 and 1.7)"
        )
    return Outcome(result if result.dim() == 1 else result.reshape(-1), None, logprobs)


def blocks_of(value: Any, *, rows: int, width: int, label: str) -> Outcome:
    """The answer of a model with block output: `width` tokens of each of `rows` rows, integers [rows, width].

    The scheduler reserved so many: a model that decides otherwise would lose its place. Source: tt-metal contract 1.12.
    """
    members = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    result = members[0] if members else None
    wanted = f"tt-metal contract 1.12 wants {width} token(s) of each of {rows} row(s)"
    if not isinstance(result, torch.Tensor):
        raise AdapterError(f"{label} returned {type(result).__name__}: {wanted}")
    if result.is_floating_point() or result.numel() != rows * width or result.shape[-1] != width:
        raise AdapterError(f"{label} returned {result.dtype} {list(result.shape)}: {wanted}")
    return Outcome(result.reshape(-1), None, width=width)


def with_rope_deltas(value: Any, *, rows: int, vocab_size: int, label: str) -> Outcome:
    """A prefill result with the rope deltas behind it, one element a row whatever their shape (contract 1.5)."""
    kind: str = type(value).__name__
    members = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else ()
    if len(members) != 2 or members[1] is None or len(members[1]) < rows:
        raise AdapterError(
            f"{label} returned {kind}: with M-RoPE, tt-metal contract 1.5 wants a pair of the result "
            f"and the rope deltas of {rows} rows"
        )
    outcome = outcome_of(members[0], rows=rows, vocab_size=vocab_size, label=label)
    return replace(outcome, rope_deltas=[int(members[1][row].item()) for row in range(rows)])


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Several calls' outcomes as that of one. They are of one kind: one model, one question."""

    def rows_of(parts: list[torch.Tensor | None]) -> torch.Tensor | None:
        present = [part for part in parts if part is not None]
        return torch.cat(present) if len(present) == len(parts) else None

    return Outcome(
        rows_of([outcome.tokens for outcome in outcomes]),
        rows_of([outcome.logits for outcome in outcomes]),
        _joined_logprobs([outcome.logprobs for outcome in outcomes]),
        [delta for outcome in outcomes for delta in outcome.rope_deltas or ()] or None,
    )


def _joined_logprobs(parts: list[Any]) -> Any:
    if all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat([part.reshape(-1) for part in parts])
    if all(isinstance(part, tuple | list) for part in parts):
        return tuple(torch.cat([part[k].reshape(1, -1) for part in parts]) for k in range(2))
    return None


def picked_tokens(outcome: Outcome, lines: list[int]) -> list[int]:
    """The device's tokens of these lines. Raises AdapterError when there are none."""
    if outcome.tokens is None:
        raise AdapterError("the model returned logits although tokens were asked for (tt-metal contract 1.5, 1.6)")
    return list(map(token_ids(outcome.tokens).__getitem__, lines))


def picked_logprobs(outcome: Outcome, lines: list[int]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The device's logprobs of these lines: those of the sampled tokens, float [n], and None; or the best candidates',
    float [n, m], and their ids, int [n, m].

    Raises AdapterError when the model returned neither. Source: tt-metal contract 1.7.
    """
    given: Any = outcome.logprobs
    if isinstance(given, torch.Tensor):
        return given.reshape(-1)[lines], None
    if isinstance(given, tuple | list):
        tensors = [part for part in cast("list[object]", given) if isinstance(part, torch.Tensor)]
        if len(tensors) == 2:
            values, ids = (part.reshape(-1, part.shape[-1])[lines] for part in tensors)
            return values, ids
    raise AdapterError(
        f"the model returned {_kind(outcome.logprobs)} for logprobs that a request asked for: tt-metal contract 1.7 "
        "wants one number a row, or the best candidates' logprobs and ids"
    )


def _kind(value: object) -> str:
    return type(value).__name__
