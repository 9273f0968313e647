"""Images of a prefill, and rotary positions in three axes: what a model that sees takes beside tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

PREFILL_KEYWORDS = ("pixel_values", "image_grid_thw")
DECODE_KEYWORD = "rope_deltas_all_users"


class Image(NamedTuple):
    """pixels: float [t * h * w, values of a patch]; grid: patches (t, h, w)."""

    pixels: Tensor
    grid: tuple[int, int, int]


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
        return [_images(pixels, grids) for pixels, grids in zip(self.pixel_values, self.image_grid_thw, strict=True)]


def _images(pixels: Sequence[Tensor] | None, grids: Sequence[Tensor] | None) -> tuple[Image, ...]:
    if not pixels or grids is None:
        return ()
    return tuple(Image(one.float(), _grid(grid)) for one, grid in zip(pixels, grids, strict=True))


def _grid(grid: Tensor) -> tuple[int, int, int]:
    frames, height, width = (int(size) for size in grid.reshape(-1))
    return frames, height, width


class Placeholder(NamedTuple):
    """The token that stands in the prompt, once for every `merge` x `merge` patches of an image."""

    token: int
    merge: int

    def count(self, grid: tuple[int, int, int]) -> int:
        """Tokens of an image."""
        frames, height, width = grid
        return frames * height * width // self.merge**2


@runtime_checkable
class ImageCompute(Protocol):
    """A `Compute` that sees and that counts rotary positions in three axes. Its `decode` takes `rotary`, int64 [n]: the
    rotary positions, which are behind the token positions by what the images saved."""

    placeholder: Placeholder

    def rope_deltas(self, rows: Any) -> Tensor:
        """int64 [n, 1]: rotary position of the token that follows each prefill row, less its token position."""
        ...
