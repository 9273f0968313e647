"""What follows a context: a pure function of its tokens and their positions, so that any answer can be checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

FAULT = np.uint64(0xD1B54A32D192ED03)
"""Added to a digest that was read from a cache which is not what the context left there."""
CANDIDATES = 32
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x9E3779B97F4A7C15)


def contributions(tokens: "NDArray[Any]", positions: "NDArray[Any]") -> Digests:
    """What each token adds to the digest of a context, uint64 [n]; the digest is their sum modulo 2^64."""
    return _mix((positions.astype(np.uint64) << np.uint64(32)) + tokens.astype(np.uint64) + _STEP)


def next_tokens(digests: Digests, vocab_size: int) -> NDArray[np.int64]:
    """The greedy token after each context, int64 [n]."""
    return (_mix(digests) % np.uint64(vocab_size)).astype(np.int64)


def digest(tokens: Sequence[int]) -> np.uint64:
    """Of a whole context that begins at position 0."""
    return contributions(np.asarray(tokens, np.int64), np.arange(len(tokens))).sum(dtype=np.uint64)


def continuation(prompt: Sequence[int], count: int, vocab_size: int) -> list[int]:
    """The `count` tokens that greedy sampling puts after `prompt`."""
    state = np.array([digest(prompt)])
    tokens: list[int] = []
    for position in range(len(prompt), len(prompt) + count):
        token = next_tokens(state, vocab_size)
        tokens.append(int(token[0]))
        state = state + contributions(token, np.array([position]))
    return tokens


def _mix(state: Digests) -> Digests:
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLIERS[0]
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLIERS[1]
    return state ^ (state >> np.uint64(31))
