"""Requests that are refused, each with its parameter's name."""

from __future__ import annotations

import pytest

from tt_platform.admission import RequestFacts, refuse_request


@pytest.mark.parametrize(
    ("request_", "parameter"),
    [
        (RequestFacts(prompt_logprobs=0), "prompt_logprobs"),
        (RequestFacts(prompt_logprobs=5), "prompt_logprobs"),
        (RequestFacts(prompt_embeds=True), "prompt_embeds"),
        (RequestFacts(media=frozenset({"image", "video"})), "messages"),
        (RequestFacts(media=frozenset({"audio"})), "messages"),
        (RequestFacts(pooling=True), "task"),
    ],
)
def test_a_refusal_names_the_parameter(request_, parameter):
    refusal = refuse_request(request_)
    assert refusal is not None
    assert refusal.parameter == parameter
    assert "not supported on Tenstorrent" in refusal.message


def test_prompt_logprobs_of_zero_is_a_request_for_them():
    assert refuse_request(RequestFacts(prompt_logprobs=0)) is not None


@pytest.mark.parametrize("request_", [RequestFacts(), RequestFacts(media=frozenset({"image"}))])
def test_an_ordinary_request_is_served(request_):
    assert refuse_request(request_) is None
