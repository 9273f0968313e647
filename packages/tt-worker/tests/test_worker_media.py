"""Images on their way to the model: whole, aligned with their rows, and their rope deltas back by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tt_worker.inputs import PrefillInputs, prefill_inputs
from tt_worker.media import Image, MediaError, begun, keywords, rope_list
from tt_worker.methods import AdapterError
from tt_worker.outcome import joined, with_rope_deltas
from tt_worker.request import RequestState

FIRST = Image(2, 5, {"pixel_values": "a", "image_grid_thw": "ga"})
SECOND = Image(5, 9, {"pixel_values": "b", "image_grid_thw": "gb"})


@pytest.mark.parametrize(
    ("end", "images"), [(1, ()), (2, ()), (5, (FIRST,)), (9, (FIRST, SECOND)), (12, (FIRST, SECOND))]
)
def test_a_chunk_brings_the_images_that_begin_before_its_end(end: int, images: tuple[Image, ...]) -> None:
    """Also those in a cached prefix: the model counts positions by them."""
    assert begun("r", (FIRST, SECOND), end) == images


@pytest.mark.parametrize("end", [3, 4, 6, 8])
def test_a_chunk_that_cuts_an_image_is_refused(end: int) -> None:
    with pytest.raises(MediaError, match=f"request 'r': a chunk ends at {end}, in an image"):
        begun("r", (FIRST, SECOND), end)


def test_rows_without_images_are_none_and_rows_with_some_have_one_tensor_each() -> None:
    assert keywords([(), (FIRST, SECOND), (FIRST,)]) == {
        "pixel_values": [None, ["a", "b"], ["a"]],
        "image_grid_thw": [None, ["ga", "gb"], ["ga"]],
    }


def test_a_model_without_grids_is_given_none() -> None:
    """Gemma 3 and Mistral 3 have images of one size."""
    assert keywords([(Image(0, 4, {"pixel_values": "a"}),)]) == {"pixel_values": [["a"]], "image_grid_thw": [None]}


def test_rope_deltas_are_by_row_with_gaps_up_to_the_last_live_row() -> None:
    assert rope_list({0: -3, 2: -8}) == [-3, 0, -8]


def state(name: str, row: int, images: tuple[Image, ...] = ()) -> RequestState[Any]:
    return RequestState(name, row, list(range(12)), [], 12, 0, None, images=images)


def test_images_follow_their_row_when_rows_are_taken_one_by_one() -> None:
    inputs = prefill_inputs([state("a", 3), state("b", 1, (FIRST, SECOND))], [4, 9], (np.zeros((2, 3), np.int32),), 1)
    assert inputs.images == [(), (FIRST, SECOND)]
    assert list(inputs.one(1).images) == [(FIRST, SECOND)]
    assert isinstance(inputs.one(0), PrefillInputs)
    assert list(inputs.one(0).images) == [()]


LOGITS = torch.zeros(2, 1, 7)
TOKENS = (torch.tensor([[1], [2]]), torch.ones(2))


@pytest.mark.parametrize("deltas", [torch.tensor([-4, 0]), torch.tensor([[-4.0], [0.0]])], ids=["[n]", "[n, 1]"])
@pytest.mark.parametrize("value", [LOGITS, TOKENS], ids=["logits", "tokens"])
def test_a_prefill_result_may_come_with_rope_deltas_of_either_shape(value: Any, deltas: torch.Tensor) -> None:
    outcome = with_rope_deltas((value, deltas), rows=2, vocab_size=7, label="m")
    assert outcome.rope_deltas == [-4, 0]
    assert (outcome.tokens is None) == (value is LOGITS)


@pytest.mark.parametrize("value", [LOGITS, (LOGITS, None), (LOGITS, torch.tensor([1]))])
def test_a_prefill_without_rope_deltas_breaks_the_contract(value: Any) -> None:
    with pytest.raises(AdapterError, match=r"m returned .*rope deltas of 2 rows"):
        with_rope_deltas(value, rows=2, vocab_size=7, label="m")


def test_rope_deltas_of_rows_taken_one_by_one_are_joined_in_their_order() -> None:
    one = [with_rope_deltas((LOGITS[:1], torch.tensor([delta])), rows=1, vocab_size=7, label="m") for delta in (-1, -2)]
    assert joined(one).rope_deltas == [-1, -2]
