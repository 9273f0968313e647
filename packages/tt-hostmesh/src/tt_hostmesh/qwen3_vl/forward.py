"""The forward pass: Qwen 3's layers over text and images."""

import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.qwen2_5_vl.forward import SeeingCompute
from tt_hostmesh.qwen2_5_vl.positions import axes_by_turns
from tt_hostmesh.qwen3_vl.config import Qwen3VLConfig
from tt_hostmesh.qwen3_vl.tower import VisionTower
from tt_hostmesh.qwen3_vl.weights import Qwen3VLWeights


class Qwen3VLCompute(SeeingCompute):
    """Qwen 3-VL."""

    def __init__(self, config: Qwen3VLConfig, weights: Qwen3VLWeights, max_seq_len: int) -> None:
        super().__init__(
            config.text,
            weights.text,
            max_seq_len,
            placeholder=config.placeholder,
            axes=axes_by_turns(config.sections),
            see=VisionTower(config.vision, weights.tower).embed,
            deep=len(config.vision.deep_layers),
        )
        self._head_norms = weights.head_norms

    def _norm_heads(self, layer: int, heads: Tensor) -> None:
        split, eps = self.config.num_heads, self.config.rms_norm_eps
        for part, norm in zip((heads[:, :split], heads[:, split:]), self._head_norms[layer], strict=True):
            part.copy_(F.rms_norm(part, norm.shape, norm, eps))
