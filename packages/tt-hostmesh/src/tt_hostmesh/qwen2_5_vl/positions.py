"""Rotary positions in three axes: a token of text counts one in each, an image counts its longer side."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tt_hostmesh.adapter.images import Image
from tt_hostmesh.qwen2_5_vl.placeholder import PatchPlaceholder


def rotary_positions(tokens: Tensor, images: Sequence[Image], placeholder: PatchPlaceholder) -> Tensor:
    """int64 [3, n]: frame, line and column of each of `tokens`, int64 [n], whose images are `images` in their order.

    Raises ValueError when the placeholders in `tokens` are not those of the images: an image was cut, or forgotten.
    """
    parts: list[Tensor] = []
    at = following = 0
    for begin, image in zip(_starts(tokens, images, placeholder), images, strict=True):
        parts.append(_text(following, begin - at))
        following += begin - at
        parts.append(_image(following, image.grid, placeholder.merge))
        following += max(image.grid[1:]) // placeholder.merge
        at = begin + placeholder.count(image)
    parts.append(_text(following, len(tokens) - at))
    return torch.cat(parts, 1)


def axes_of_sections(sections: Sequence[int]) -> Tensor:
    """int64 [head_dim / 2]: the axis that each frequency turns with, when the first section of them turns with frames,
    the next with lines, the last with columns."""
    return torch.arange(3).repeat_interleave(torch.tensor(sections))


def axes_by_turns(sections: Sequence[int]) -> Tensor:
    """The same when frequencies take the three axes by turns, for as long as an axis has some left; frames have the
    rest."""
    axes = torch.zeros(sum(sections), dtype=torch.int64)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


def rope_delta(positions: Tensor) -> int:
    """What to add to the token position of whatever follows `positions`, int64 [3, n], to get its rotary position."""
    return int(positions.max()) + 1 - positions.shape[1]


def _starts(tokens: Tensor, images: Sequence[Image], placeholder: PatchPlaceholder) -> list[int]:
    found: Tensor = tokens == placeholder.token
    places = [int(place) for place in found.nonzero()[:, 0]]
    starts: list[int] = []
    used = 0
    for image in images:
        count = placeholder.count(image)
        mine = places[used : used + count]
        if len(mine) < count or mine[-1] - mine[0] + 1 != count:
            raise ValueError(
                f"an image of {count} tokens is cut: the row has {len(mine)} of its placeholders in one run"
            )
        starts.append(mine[0])
        used += count
    if used != len(places):
        raise ValueError(f"the row has {len(places)} image placeholders and images for {used} of them")
    return starts


def _text(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count).expand(3, -1)


def _image(start: int, grid: tuple[int, int, int], merge: int) -> Tensor:
    frames, lines, columns = grid[0], grid[1] // merge, grid[2] // merge
    axes = torch.meshgrid(torch.arange(frames), torch.arange(lines), torch.arange(columns), indexing="ij")
    return torch.stack([axis.reshape(-1) for axis in axes]) + start
