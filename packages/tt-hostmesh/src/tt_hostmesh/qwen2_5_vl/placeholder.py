"""How an image stands in a prompt of Qwen's vision models."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tt_hostmesh.adapter.images import Image


@dataclass(frozen=True, slots=True)
class PatchPlaceholder:
    """The token stands in the prompt once for every `merge` x `merge` patches of an image."""

    token: int
    merge: int
    form: ClassVar[str] = "[t * h * w, values of a patch] with its grid [3]"

    def count(self, image: Image) -> int:
        """Tokens of an image."""
        frames, height, width = image.grid
        return frames * height * width // self.merge**2

    def fits(self, pixels: Tensor, grid: object) -> bool:
        """Whether pixels and grid speak of the same patches."""
        return isinstance(grid, Tensor) and grid.numel() == 3 and pixels.dim() == 2 and len(pixels) == int(grid.prod())
