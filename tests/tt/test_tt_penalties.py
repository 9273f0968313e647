"""Penalties change what their request repeats, and nothing of the request beside it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tt_api import Api

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

LOOP = "one two three one two three one two three one two three one two"
PLAIN: dict[str, Any] = {"prompt": LOOP, "max_tokens": 12, "ignore_eos": True}


def most(text: str) -> int:
    """How often the most frequent word is there."""
    return max(Counter(text.split()).values(), default=0)


@pytest.fixture(scope="module")
def alone(api: Api) -> str:
    """The answer without a penalty, which loops."""
    (text,) = api.texts(PLAIN)
    assert most(text) >= 4, f"the model does not loop: {text!r}"
    return text


@pytest.mark.parametrize(
    "penalty", [{"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 8.0}], ids=str
)
def test_tt_a_penalty_breaks_a_loop_and_spares_the_neighbour(api: Api, alone: str, penalty: dict[str, float]) -> None:
    plain, penalised, other = api.texts(PLAIN, {**PLAIN, **penalty}, PLAIN)
    assert most(penalised) < most(alone)
    assert (plain, other) == (alone, alone)


def test_tt_a_repetition_penalty_counts_the_prompt(api: Api) -> None:
    first = api.text(**{**PLAIN, "max_tokens": 1})
    assert first.strip() in LOOP.split()
    assert api.text(**{**PLAIN, "max_tokens": 1}, repetition_penalty=8.0) != first


def test_tt_a_presence_penalty_counts_the_answer_alone(api: Api) -> None:
    """The first token has no answer before it."""
    one = {**PLAIN, "max_tokens": 1}
    first, penalised = api.texts(one, {**one, "presence_penalty": 2.0})
    assert penalised == first


def test_tt_a_negative_penalty_strengthens_a_loop(api: Api, alone: str) -> None:
    assert most(api.text(**PLAIN, frequency_penalty=-2.0)) > most(alone)
