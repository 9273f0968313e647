"""Log probabilities: one entry a token, in order, below zero, and only for those who asked."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tt_api import Api

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

ASKED: dict[str, Any] = {"prompt": "The sea is", "max_tokens": 5}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.mark.parametrize("count", [1, 5, 20])
def test_tt_every_token_has_its_top_list(api: Api, count: int) -> None:
    (choice,) = api.choices({**ASKED, "logprobs": count, "ignore_eos": True})
    found = choice["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["top_logprobs"]) == 5
    assert "".join(found["tokens"]) == choice["text"]
    for value, top in zip(found["token_logprobs"], found["top_logprobs"], strict=True):
        assert value <= 0
        # Two ids of the vocabulary may have the same text.
        assert count - 1 <= len(top) <= count + 1
        assert value == pytest.approx(max(top.values()), abs=1e-3), "a greedy token is the likeliest"
        assert sum(map(math.exp, top.values())) <= 1.001


def test_tt_zero_logprobs_are_those_of_the_sampled_tokens(api: Api) -> None:
    (few,) = api.choices({**ASKED, "logprobs": 0})
    (more,) = api.choices({**ASKED, "logprobs": 3})
    assert few["logprobs"]["token_logprobs"] == pytest.approx(more["logprobs"]["token_logprobs"], abs=0.05)


def test_tt_logprobs_are_for_the_request_that_asked(api: Api) -> None:
    asked, plain = {**ASKED, "logprobs": 2}, ASKED
    choices = api.choices(plain, asked, plain)
    assert [choice["logprobs"] is None for choice in choices] == [True, False, True]
    assert len({choice["text"] for choice in choices}) == 1


def test_tt_a_sampled_token_need_not_be_the_likeliest(api: Api) -> None:
    warm = {**ASKED, "logprobs": 1, "temperature": 1.9, "seed": 5, "max_tokens": 12, "ignore_eos": True}
    (choice,) = api.choices(warm)
    found = choice["logprobs"]
    assert any(
        value < max(top.values()) for value, top in zip(found["token_logprobs"], found["top_logprobs"], strict=True)
    )


def test_tt_a_chat_answer_has_them_too(api: Api) -> None:
    (choice,) = api.choices({"messages": QUESTION, "logprobs": True, "top_logprobs": 4, "max_tokens": 4})
    entries = choice["logprobs"]["content"]
    assert len(entries) == 4
    for entry in entries:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert entry["logprob"] == values[0]


def test_tt_more_logprobs_than_are_allowed_are_refused(api: Api) -> None:
    assert api.refusal(**ASKED, logprobs=21).status == 400


def test_tt_logprobs_of_the_prompt_are_refused(api: Api) -> None:
    refused = api.refusal(**ASKED, prompt_logprobs=1)
    assert refused.status == 400
    assert "prompt_logprobs" in refused.said
