"""Images in prompts that are computed in chunks: a chunk ends before an image or behind it."""

from __future__ import annotations

from collections.abc import Iterable


def whole_images(spans: Iterable[tuple[int, int]], start: int, tokens: int) -> int:
    """How many of `tokens`, at most, a chunk from position `start` on takes without ending inside one of `spans`, which
    are [first, end) of images. 0: the chunk begins at an image that it cannot hold."""
    for first, end in spans:
        if first < start + tokens < end:
            return max(0, first - start)
    return tokens
