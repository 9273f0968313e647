"""The forward pass: Llama's layers over text and images."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import PrefillRow
from tt_hostmesh.llama.forward import LlamaCompute
from tt_hostmesh.qwen2_5_vl.config import Qwen25VLConfig
from tt_hostmesh.qwen2_5_vl.positions import rope_delta, rotary_positions
from tt_hostmesh.qwen2_5_vl.tower import VisionTower
from tt_hostmesh.qwen2_5_vl.weights import Qwen25VLWeights


class Qwen25VLCompute(LlamaCompute):
    """Qwen 2.5-VL in float32 (see adapter.compute.Compute and adapter.images for the calls)."""

    def __init__(self, config: Qwen25VLConfig, weights: Qwen25VLWeights, max_seq_len: int) -> None:
        super().__init__(config.text, weights.text, max_seq_len)
        self.placeholder = config.placeholder
        self._sections = config.sections
        self._tower = VisionTower(config.vision, weights.tower)

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor, rotary: Tensor | None = None) -> Tensor:
        """As the base class; rotary int64 [n]: rotary positions, in all axes the same for tokens of text."""
        turned = positions if rotary is None else rotary
        return self._step(self._embed(tokens), self._rotations[turned], positions, blocks)

    def rope_deltas(self, rows: Sequence[PrefillRow]) -> Tensor:
        """int64 [n, 1]."""
        return torch.tensor([[rope_delta(self._positions(row))] for row in rows])

    def _row_inputs(self, row: PrefillRow) -> tuple[Tensor, Tensor]:
        rotation = self._rotation_of(self._positions(row)[:, row.start :])
        hidden = self._embed(row.tokens)
        places = (row.tokens == self.placeholder.token).nonzero()[:, 0]
        used = 0
        for image in row.images:
            mine = places[used : used + self.placeholder.count(image)]
            used += len(mine)
            if mine[-1] >= row.start:
                hidden[mine] = self._tower.embed(image)
        return hidden[row.start :], rotation

    def _positions(self, row: PrefillRow) -> Tensor:
        return rotary_positions(row.tokens, row.images, self.placeholder)

    def _rotation_of(self, positions: Tensor) -> Tensor:
        """complex64 [t, head_dim / 2]: each section of frequencies turns with its own axis of `positions` [3, t]."""
        edges = [0, *accumulate(self._sections)]
        axes = [self._rotations[positions[i], edges[i] : edges[i + 1]] for i in range(3)]
        return torch.cat(axes, 1)
