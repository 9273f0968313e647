"""Requests that are refused, each with its parameter's name."""

from __future__ import annotations

import pytest

from tt_platform.admission import AROUND, REFUSED, SAMPLED, RequestFacts, refuse_request


@pytest.mark.parametrize(
    ("request_", "parameter"),
    [
        (RequestFacts(unserved=(("prompt_logprobs", 0),)), "prompt_logprobs"),
        (RequestFacts(unserved=(("a_new_parameter", [1]),)), "a_new_parameter"),
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


def test_no_parameter_is_both_honoured_and_refused():
    assert not SAMPLED & AROUND
    assert not (SAMPLED | AROUND) & REFUSED.keys()


@pytest.mark.parametrize("request_", [RequestFacts(), RequestFacts(media=frozenset({"image"}))])
def test_an_ordinary_request_is_served(request_):
    assert refuse_request(request_) is None
