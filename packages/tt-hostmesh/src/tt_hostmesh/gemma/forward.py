"""Gemma 3 over text and images."""

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import PrefillRow
from tt_hostmesh.gemma.decoder import GemmaDecoder
from tt_hostmesh.gemma.placeholder import PicturePlaceholder
from tt_hostmesh.gemma.tower import VisionTower
from tt_hostmesh.layers.compute import LayeredCompute
from tt_hostmesh.layers.step import ALONE, Step


class SeeingGemmaCompute(LayeredCompute):
    """A LayeredCompute whose prefill rows have images (see adapter.images.ImageCompute).

    The tokens of a picture see one another; in a layer with a window, as far back as the window reaches.
    """

    def __init__(self, decoder: GemmaDecoder, tower: VisionTower, placeholder: PicturePlaceholder) -> None:
        super().__init__(decoder)
        self.placeholder = placeholder
        self._gemma = decoder
        self._tower = tower

    def _prefill_row(self, row: PrefillRow) -> Tensor:
        positions = torch.arange(row.start, len(row.tokens))[None]
        places = row.tokens == self.placeholder.token
        step = Step(self._require_cache(), positions, row.blocks[:, None], runs(places))
        return self._gemma.through(self._inputs(row, places)[None, row.start :], step)

    def _inputs(self, row: PrefillRow, places: Tensor) -> Tensor:
        """float32 [end, hidden]. Images that lie before the row's start are left out."""
        hidden = self._gemma.embed(row.tokens)
        at = places.nonzero()[:, 0]
        used = 0
        for image in row.images:
            mine = at[used : used + self.placeholder.count(image)]
            used += len(mine)
            if mine[-1] >= row.start:
                hidden[mine] = self._tower.embed(image.pixels)
        return hidden


def runs(marked: Tensor) -> Tensor:
    """int64 [t]: for each marked position of bool [t] the number of its run, ALONE for any other."""
    begins = marked.clone()
    begins[1:] &= ~marked[:-1]
    return torch.where(marked, begins.cumsum(0), ALONE)
