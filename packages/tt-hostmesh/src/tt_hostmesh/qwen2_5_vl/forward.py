"""The forward pass: Llama's layers over text and images."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import PrefillRow
from tt_hostmesh.adapter.images import Image
from tt_hostmesh.llama.config import LlamaConfig
from tt_hostmesh.llama.forward import LlamaCompute, RowInputs
from tt_hostmesh.llama.weights import LlamaWeights
from tt_hostmesh.qwen2_5_vl.config import Qwen25VLConfig
from tt_hostmesh.qwen2_5_vl.placeholder import PatchPlaceholder
from tt_hostmesh.qwen2_5_vl.positions import axes_of_sections, rope_delta, rotary_positions
from tt_hostmesh.qwen2_5_vl.tower import VisionTower
from tt_hostmesh.qwen2_5_vl.weights import Qwen25VLWeights

See = Callable[[Image], Sequence[Tensor]]
"""An image -> float32 [tokens, hidden] each: what stands for its tokens, and what they get behind the first layers."""


class SeeingCompute(LlamaCompute):
    """Llama's layers with images and rotary positions in three axes, float32 (see adapter.compute.Compute and
    adapter.images for the calls)."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        max_seq_len: int,
        *,
        placeholder: PatchPlaceholder,
        axes: Tensor,
        see: See,
        deep: int = 0,
    ) -> None:
        """axes: int64 [head_dim / 2], the axis that each frequency turns with; deep: tensors of `see` but the first."""
        super().__init__(config, weights, max_seq_len)
        self.placeholder = placeholder
        self._axes = axes
        self._see = see
        self._deep = deep

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor, rotary: Tensor | None = None) -> Tensor:
        """As the base class; rotary int64 [n]: rotary positions, in all axes the same for tokens of text."""
        turned = positions if rotary is None else rotary
        return self._step(self._embed(tokens), self._rotations[turned], positions, blocks)

    def rope_deltas(self, rows: Sequence[PrefillRow]) -> Tensor:
        """int64 [n, 1]."""
        return torch.tensor([[rope_delta(self._positions(row))] for row in rows])

    def _row_inputs(self, row: PrefillRow) -> RowInputs:
        rotation = self._rotation_of(self._positions(row)[:, row.start :])
        hidden = self._embed(row.tokens)
        added = [torch.zeros_like(hidden) for _ in range(self._deep)]
        places = (row.tokens == self.placeholder.token).nonzero()[:, 0]
        used = 0
        for image in row.images:
            mine = places[used : used + self.placeholder.count(image)]
            used += len(mine)
            if mine[-1] < row.start:
                continue
            for total, seen in zip((hidden, *added), self._see(image), strict=True):
                total[mine] = seen
        return RowInputs(hidden[row.start :], rotation, [one[row.start :] for one in added])

    def _positions(self, row: PrefillRow) -> Tensor:
        return rotary_positions(row.tokens, row.images, self.placeholder)

    def _rotation_of(self, positions: Tensor) -> Tensor:
        """complex64 [t, head_dim / 2]: each frequency turns with its own axis of `positions` [3, t]."""
        return self._rotations[positions[self._axes].T, torch.arange(len(self._axes))]


class Qwen25VLCompute(SeeingCompute):
    """Qwen 2.5-VL."""

    def __init__(self, config: Qwen25VLConfig, weights: Qwen25VLWeights, max_seq_len: int) -> None:
        tower = VisionTower(config.vision, weights.tower)
        super().__init__(
            config.text,
            weights.text,
            max_seq_len,
            placeholder=config.placeholder,
            axes=axes_of_sections(config.sections),
            see=lambda image: [tower.embed(image)],
        )
