"""The order of an image's patches, and which of them attend to one another."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tt_hostmesh.adapter.images import Grid


@dataclass(frozen=True, slots=True)
class Windows:
    """order: int64 [merged patches], the order of computation; sizes: merged patches of each window, in that order."""

    order: Tensor
    sizes: list[int]


def windows(grid: Grid, merge: int, side: int) -> Windows:
    """Windows of `side` x `side` merged patches in each frame; those at the right and lower edge are smaller."""
    frames, lines, columns = grid[0], grid[1] // merge, grid[2] // merge
    places = torch.arange(frames * lines * columns).view(frames, lines, columns)
    parts = [
        places[frame, line : line + side, column : column + side].reshape(-1)
        for frame in range(frames)
        for line in range(0, lines, side)
        for column in range(0, columns, side)
    ]
    return Windows(torch.cat(parts), [len(part) for part in parts])


def patch_places(grid: Grid, merge: int) -> Tensor:
    """int64 [patches, 2]: line and column of each patch, in the order in which processors give them: the patches of a
    merged one side by side."""
    frames, lines, columns = grid
    line, column = torch.meshgrid(torch.arange(lines), torch.arange(columns), indexing="ij")
    shape = (lines // merge, merge, columns // merge, merge)
    both = [axis.reshape(shape).transpose(1, 2).reshape(-1) for axis in (line, column)]
    return torch.stack(both, 1).repeat(frames, 1)
