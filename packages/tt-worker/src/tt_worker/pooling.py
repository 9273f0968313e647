"""Embedding a batch of whole prompts: the one call that a pooling model class answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tt_worker.methods import AdapterError, Method


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks of its embedding. normalized: of length 1; dimensions: the first so many only; None: all."""

    normalized: bool = True
    dimensions: int | None = None

    def shaped(self, embedding: Tensor) -> Tensor:
        """float32 [H] or [dimensions]. A shortened embedding is normalised after that, as vLLM's pooler does it."""
        cut = embedding.float() if self.dimensions is None else embedding[: self.dimensions].float()
        return torch.nn.functional.normalize(cut, dim=-1) if self.normalized else cut


class PoolingModel:
    """A model object with `forward(input_ids, attention_mask)`: no cache, no warm-up (tt-metal contract 1.13)."""

    def __init__(self, model: Any) -> None:
        self._forward = Method(model, "forward", "1.13")

    def embed(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """[n, H] of n prompts of token ids.

        Raises:
            AdapterError: the answer has another shape.
        """
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.int64)
        mask = torch.zeros(len(prompts), width, dtype=torch.float32)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
            mask[row, : len(prompt)] = 1.0
        answer: Any = self._forward({"input_ids": ids, "attention_mask": mask})
        if not isinstance(answer, Tensor) or answer.dim() != 2 or len(answer) < len(prompts):
            shape = list(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise AdapterError(
                f"{self._forward.label} returned {shape}: tt-metal contract 1.13 wants one vector for each of "
                f"{len(prompts)} prompts"
            )
        return answer[: len(prompts)]
