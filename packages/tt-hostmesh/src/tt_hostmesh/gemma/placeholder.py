"""How an image stands in a prompt of Gemma 3."""

from dataclasses import dataclass

from torch import Tensor

from tt_hostmesh.adapter.images import Image


@dataclass(frozen=True, slots=True)
class PicturePlaceholder:
    """The token stands in the prompt `tokens` times for every picture of an image: the image itself, and crops of it.

    side: of a picture, pixels
    """

    token: int
    tokens: int
    side: int

    @property
    def form(self) -> str:
        return f"[pictures, 3, {self.side}, {self.side}] without a grid"

    def count(self, image: Image) -> int:
        """Tokens of an image."""
        return len(image.pixels) * self.tokens

    def fits(self, pixels: Tensor, grid: object) -> bool:
        """Whether the pixels are of square pictures."""
        return grid is None and pixels.dim() == 4 and tuple(pixels.shape[1:]) == (3, self.side, self.side)
