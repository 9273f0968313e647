"""Embedding whole prompts: what a pooling class is given, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tt_worker.methods import AdapterError
from tt_worker.pooling import PoolingModel, Wanted


class Sums:
    """The embedding of a prompt is its length and its sum: padding that counts would show."""

    def __init__(self) -> None:
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self.asked.append((input_ids, attention_mask))
        return torch.stack([attention_mask.sum(1), (input_ids * attention_mask).sum(1)], 1)


class Wrong:
    def forward(self, **call: Any) -> Any:
        return torch.zeros(3)


def test_prompts_are_padded_behind_their_ends_and_masked() -> None:
    model = Sums()
    vectors = PoolingModel(model).embed([[1, 2, 3], [9], [4, 5]])
    assert vectors.tolist() == [[3, 6], [1, 9], [2, 9]]
    ids, mask = model.asked[0]
    assert (ids.dtype, mask.dtype) == (torch.int64, torch.float32)
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]


def test_an_answer_that_is_no_vector_a_prompt_is_refused() -> None:
    with pytest.raises(AdapterError, match=r"returned \[3\].*one vector for each of 2 prompts"):
        PoolingModel(Wrong()).embed([[1], [2]])


@pytest.mark.parametrize(
    ("wanted", "vector"),
    [(Wanted(), [0.6, 0.8, 0.0]), (Wanted(normalized=False), [3, 4, 0]), (Wanted(dimensions=1), [1.0])],
)
def test_an_embedding_is_of_length_1_unless_a_request_says_otherwise(wanted: Wanted, vector: list[float]) -> None:
    assert wanted.shaped(torch.tensor([3.0, 4.0, 0.0])).tolist() == pytest.approx(vector)
