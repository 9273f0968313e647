"""Parameters that no device sampler knows work all the same, beside requests that it could sample."""

from __future__ import annotations

from typing import Any

import pytest
from tt_api import Api

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

SEA: dict[str, Any] = {"prompt": "The sea is"}
WARM: dict[str, Any] = {**SEA, "temperature": 1.8, "top_k": 32}


def test_tt_min_p_of_one_leaves_the_likeliest_token(api: Api) -> None:
    greedy, narrow, _ = api.texts(SEA, {**WARM, "min_p": 1.0}, WARM)
    assert narrow == greedy


def test_tt_a_bias_of_100_decides_and_one_of_minus_100_forbids(api: Api) -> None:
    (token,) = api.tokens(" fish")[:1]
    first = api.text(**SEA, max_tokens=1)
    banned = str(api.tokens(first)[0])
    plain, forced, other = api.texts(
        SEA,
        {**SEA, "max_tokens": 3, "ignore_eos": True, "logit_bias": {str(token): 100}},
        {**SEA, "max_tokens": 1, "logit_bias": {banned: -100}},
    )
    assert len(set(forced.split())) == 1
    assert "fish" in forced
    assert other != first
    assert plain.startswith(first)


def test_tt_allowed_tokens_are_the_only_ones(api: Api) -> None:
    allowed = [api.tokens(f" {word}")[0] for word in ("red", "green", "blue")]
    fields = {"allowed_token_ids": allowed, "ignore_eos": True, "max_tokens": 6}
    answer, _ = api.texts({**WARM, **fields}, SEA)
    assert set(answer.split()) <= {"red", "green", "blue"}


def test_tt_a_bad_word_is_gone(api: Api) -> None:
    word = api.text(**SEA, max_tokens=12).split()[0]
    without, plain = api.texts({**SEA, "bad_words": [word], "max_tokens": 12}, SEA)
    assert word not in without.split()
    assert word in plain.split()


def test_tt_min_tokens_hold_an_answer_open(api: Api) -> None:
    stop = api.tokens(api.text(**SEA))[0]
    short, long = api.choices(
        {**SEA, "stop_token_ids": [stop]}, {**SEA, "stop_token_ids": [stop], "min_tokens": 5, "logprobs": 0}
    )
    assert short["finish_reason"] == "stop"
    assert len(long["logprobs"]["tokens"]) >= 5


def test_tt_all_of_them_in_one_batch_with_seeds(api: Api) -> None:
    """The same mixed batch twice."""
    token = str(api.tokens(" fish")[0])
    mixed = [
        {**WARM, "seed": 1, "min_p": 0.2},
        {**WARM, "seed": 2, "logit_bias": {token: 4}},
        {**WARM, "seed": 3, "presence_penalty": 1.0},
        {**WARM, "seed": 4, "min_tokens": 4},
        SEA,
    ]
    assert api.texts(*mixed) == api.texts(*mixed)
