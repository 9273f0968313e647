"""Images of a request: where their placeholders stand in its prompt, and what the model is given of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KEYWORDS = ("pixel_values", "image_grid_thw")
"""Source: tt-metal contract 1.5."""


class MediaError(RuntimeError):
    """An image cannot be handed to the model. A fault in the scheduler or in this package, never in a request."""


@dataclass(frozen=True, slots=True)
class Image:
    """Its placeholders are the positions [start, end) of the prompt.

    values: the engine's tensors by the model's keyword; a model that wants no grid has none
    """

    start: int
    end: int
    values: Mapping[str, Any]


def begun(request_id: str, images: Sequence[Image], end: int) -> tuple[Image, ...]:
    """The images that begin before `end`, where a chunk ends: all of them, also those that are in the cache, since the
    model is given all tokens from position 0 on and counts their positions by the images.

    Raises:
        MediaError: the chunk cuts an image in two.
    """
    found = tuple(image for image in images if image.start < end)
    if found and found[-1].end > end:
        raise MediaError(
            f"request {request_id!r}: a chunk ends at {end}, in an image at [{found[-1].start}, {found[-1].end}); the "
            "scheduler must keep images whole"
        )
    return found


def keywords(rows: Sequence[Sequence[Image]]) -> dict[str, list[list[Any] | None]]:
    """What a multimodal class is given: for each keyword one entry a row, None or a tensor for each of its images."""
    return {name: [_values(name, images) for images in rows] for name in KEYWORDS}


def _values(name: str, images: Sequence[Image]) -> list[Any] | None:
    found = [image.values[name] for image in images if name in image.values]
    return found or None


def rope_list(deltas: Mapping[int, int]) -> list[int]:
    """Rope deltas of live rows as the model takes them: one a row up to the last live one, 0 where nobody is.

    Source: tt-metal contract 1.6, where rows have no gaps.
    """
    return [deltas.get(row, 0) for row in range(max(deltas) + 1)]
