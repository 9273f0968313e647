"""Requests about images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from family import Asked


def picture(width: int, height: int, seed: int) -> Any:
    """A random image of so many pixels."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def prompt(asked: Asked) -> Any:
    """As vLLM takes it: one mark for each image."""
    given: dict[str, Any] = {"prompt_token_ids": list(asked.prompt)}
    return {**given, "multi_modal_data": {"image": list(asked.media)}} if asked.media else given


def placed(asked: Asked, images: Sequence[tuple[int, Any]], mark: Sequence[int]) -> Asked:
    """The request with these images, each put before the token of its number; mark: what stands for one."""
    tokens = list(asked.prompt)
    for at, _ in reversed(images):
        tokens[at:at] = mark
    return replace(asked, prompt=tokens, media=tuple(image for _, image in images))
