"""Twelve requests that together meet every edge of blocks, chunks and tiles."""

from __future__ import annotations

import random

from family import Asked

LENGTHS = (1, 31, 64, 65, 97, 128, 200, 255)
SHARED = 192
"""Tokens, three blocks of 64, that the last four prompts begin with."""


def mixture(vocabulary: int, *, seed: int = 3, first_id: int = 3) -> tuple[Asked, ...]:
    """Prompts of 1 to 255 tokens with ids of [first_id, vocabulary), the last four with a common prefix.

    They ask for 20 to 60 tokens each. Two need the host's sampler, which does nothing to their tokens: a bias of 0.
    """
    rng = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(first_id, vocabulary) for _ in range(count)]

    shared = tokens(SHARED)
    prompts = [tokens(length) for length in LENGTHS]
    prompts += [shared, [*shared, *tokens(1)], [*shared, *tokens(2)], [*shared, *tokens(60)]]
    return tuple(
        Asked(prompt, 20 + (11 * i) % 41, params={"logit_bias": {first_id: 0.0}} if i in (1, 9) else {})
        for i, prompt in enumerate(prompts)
    )


def on_device(requests: tuple[Asked, ...]) -> tuple[Asked, ...]:
    """The same without what needs the host's sampler."""
    return tuple(Asked(asked.prompt, asked.max_tokens, asked.media) for asked in requests)
