"""Images of a prefill, and rotary positions in three axes: what a model that sees takes beside tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from torch import Tensor

PREFILL_KEYWORDS = ("pixel_values", "image_grid_thw")
DECODE_KEYWORD = "rope_deltas_all_users"

Grid = tuple[int, int, int]
"""Patches of an image: frames, lines, columns."""


class Image(NamedTuple):
    """pixels: float, in the form of the model's placeholder; grid: of a model that is told its patches."""

    pixels: Tensor
    grid: Grid = (0, 0, 0)


class Placeholder(Protocol):
    """How an image stands in a prompt, and in which form the model takes it."""

    @property
    def token(self) -> int:
        """The token that stands for a part of an image."""
        ...

    @property
    def form(self) -> str:
        """What `fits` wants, in words."""
        ...

    def count(self, image: Image) -> int:
        """Tokens of an image."""
        ...

    def fits(self, pixels: Tensor, grid: object) -> bool:
        """Whether an image may be handed over like this; grid: None when none came with it."""
        ...


@dataclass(frozen=True, slots=True)
class ImageArguments:
    """The keywords as given (contract 1.5): a list with one entry a row, None or the row's images in their order."""

    pixel_values: Any
    image_grid_thw: Any

    @staticmethod
    def take(keywords: dict[str, Any]) -> "ImageArguments":
        """Take the two keywords out of `keywords`; a keyword that is missing counts as None."""
        return ImageArguments(*(keywords.pop(name, None) for name in PREFILL_KEYWORDS))

    def rows(self, count: int) -> list[tuple[Image, ...]]:
        """The images of each of `count` rows. A grid may come as [3] or [1, 3]."""
        if self.pixel_values is None:
            return [()] * count
        grids = [None] * count if self.image_grid_thw is None else self.image_grid_thw
        return [_images(pixels, grid) for pixels, grid in zip(self.pixel_values, grids, strict=True)]


def _images(pixels: Sequence[Tensor] | None, grids: Sequence[Tensor] | None) -> tuple[Image, ...]:
    if not pixels:
        return ()
    if grids is None:
        return tuple(Image(one.float()) for one in pixels)
    return tuple(Image(one.float(), _grid(grid)) for one, grid in zip(pixels, grids, strict=True))


def _grid(grid: Tensor) -> Grid:
    return cast("Grid", tuple(int(size) for size in grid.reshape(-1)))


@runtime_checkable
class ImageCompute(Protocol):
    """A `Compute` that sees: its prefill rows have images."""

    placeholder: Placeholder


@runtime_checkable
class RopeCompute(Protocol):
    """A `Compute` that counts rotary positions in three axes. Its `decode` takes `rotary`, int64 [n]: the rotary
    positions, which are behind the token positions by what the images saved."""

    def rope_deltas(self, rows: Any) -> Tensor:
        """int64 [n, 1]: rotary position of the token that follows each prefill row, less its token position."""
        ...
