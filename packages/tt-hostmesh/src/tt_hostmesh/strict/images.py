"""The images of a prefill call (contract 1.5), and the rope deltas of decode calls (1.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from tt_hostmesh.adapter.images import DECODE_KEYWORD, PREFILL_KEYWORDS, Image, ImageArguments, Placeholder
from tt_hostmesh.strict.breach import Where
from tt_hostmesh.strict.prefill import PrefillView
from tt_hostmesh.strict.values import Ints

PREFILL = "1.5"
DECODE = "1.6"


def view_images(where: Where, placeholder: Placeholder, view: PrefillView, images: ImageArguments) -> PrefillView:
    """The call with every placeholder told from those of other images, so that a prefix of another image is found.

    Raises ContractError for lists that do not fit the rows, and for an image that is cut, missing or left over.
    """
    _check_lists(where, placeholder, images, len(view.slots))
    tokens = view.tokens.copy()
    for row, mine in enumerate(images.rows(len(view.slots))):
        places = np.flatnonzero(tokens[row, : view.ends[row]] == placeholder.token)
        counts = [placeholder.count(image) for image in mine]
        where.require(
            sum(counts) == len(places),
            PREFILL,
            f"row {row} has {len(places)} image placeholders up to {view.ends[row]}, its {len(mine)} images need "
            f"{sum(counts)}: an image is cut by the chunk's end, missing, or begins behind it",
        )
        names = [np.full(count, _name(image)) for image, count in zip(mine, counts, strict=True)]
        if names:
            tokens[row, places] = np.concatenate(names)
    return replace(view, tokens=tokens)


class RopeBook:
    """What rotary positions each row needs, and what the device has. NEVER: no prefill said it yet."""

    NEVER = np.iinfo(np.int64).max

    def __init__(self, rows: int) -> None:
        self.wanted: Ints = np.full(rows, self.NEVER, dtype=np.int64)
        self.held: Ints = np.zeros(rows, dtype=np.int64)

    def prefilled(self, slots: list[int], deltas: Tensor) -> None:
        """A prefill answered with these deltas, int64 [n, 1]."""
        self.wanted[slots] = deltas[:, 0].numpy()

    def permute(self, remap: Ints) -> None:
        self.wanted, self.held = self.wanted[remap], self.held[remap]

    def check(self, where: Where, given: Any, live: Ints) -> Ints:
        """The deltas that the device has after the call. Raises ContractError when a live row's is not the one that its
        prefill answered with."""
        held = self.held.copy()
        if given is not None:
            listed = cast("list[Any]", given) if isinstance(given, list) else None
            if listed is None or not all(type(delta) is int for delta in listed) or len(listed) > len(held):
                raise where.breach(DECODE, f"{DECODE_KEYWORD} must be None or a list of at most {len(held)} ints")
            held[: len(listed)] = listed
        wrong = live[held[live] != self.wanted[live]]
        if len(wrong):
            row = int(wrong[0])
            raise where.breach(
                DECODE,
                f"{DECODE_KEYWORD} is {given}: row {row} needs {int(self.wanted[row])}, the device would use "
                f"{int(held[row])}; all rows' deltas come along when a request is new or rows changed",
            )
        return held


def _check_lists(where: Where, placeholder: Placeholder, images: ImageArguments, rows: int) -> None:
    given = (images.pixel_values, images.image_grid_thw)
    pixels, grids = (
        _list(where, value, rows, f"{name} must be a list with one entry for each of {rows} rows")
        for name, value in zip(PREFILL_KEYWORDS, given, strict=True)
    )
    for row in range(rows):
        if pixels[row] is None and grids[row] is None:
            continue
        text = f"row {row}: pixel_values and image_grid_thw must be None, or lists of as many tensors"
        mine = _list(where, pixels[row], None, text)
        where.require(mine, PREFILL, text)
        told = [None] * len(mine) if grids[row] is None else _list(where, grids[row], len(mine), text)
        for pixel, grid in zip(mine, told, strict=True):
            fits = isinstance(pixel, torch.Tensor) and placeholder.fits(pixel, grid)
            where.require(fits, PREFILL, f"row {row}: an image is not {placeholder.form}")


def _list(where: Where, value: object, length: int | None, text: str) -> list[Any]:
    listed = cast("list[Any]", value) if isinstance(value, list) else None
    if listed is None or length not in (None, len(listed)):
        raise where.breach(PREFILL, text)
    return listed


def _name(image: Image) -> int:
    """A number for an image's tokens, above any token id."""
    return (1 << 48) + (hash((image.grid, image.pixels.numpy().tobytes())) & 0xFFFFFFFFFFFF)
