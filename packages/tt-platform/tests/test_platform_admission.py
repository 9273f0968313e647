"""Requests that are refused, each with its parameter's name."""

from __future__ import annotations

import pytest

from tt_platform.admission import AROUND, REFUSED, SAMPLED, BlockLaunch, RequestFacts, refuse_request


@pytest.mark.parametrize(
    ("request_", "parameter"),
    [
        (RequestFacts(unserved=(("prompt_logprobs", 0),)), "prompt_logprobs"),
        (RequestFacts(unserved=(("a_new_parameter", [1]),)), "a_new_parameter"),
        (RequestFacts(prompt_embeds=True), "prompt_embeds"),
        (RequestFacts(media=frozenset({"image", "video"})), "messages"),
        (RequestFacts(media=frozenset({"audio"})), "messages"),
        (RequestFacts(pooling=True, task="classify"), "task"),
    ],
)
def test_a_refusal_names_the_parameter(request_, parameter):
    refusal = refuse_request(request_)
    assert refusal is not None
    assert refusal.parameter == parameter
    assert "not supported on Tenstorrent" in refusal.message


@pytest.mark.parametrize(
    ("request_", "parameter", "text"),
    [
        (RequestFacts(prompt_tokens=5, chosen=(("n", 2),)), "n", "n=2 is not supported on Tenstorrent"),
        (RequestFacts(prompt_tokens=5, chosen=(("logprobs", 3),)), "logprobs", "blocks of 8 tokens; leave it unset"),
        (RequestFacts(prompt_tokens=33, max_tokens=40), "max_tokens", "allowed 32 or less"),
        (RequestFacts(prompt_tokens=97), "prompt", "leaves no room for a block"),
    ],
)
def test_a_request_that_blocks_cannot_serve_is_refused(request_, parameter, text):
    """A context of 100 holds three tiles: prompts fill whole ones."""
    refusal = refuse_request(request_, BlockLaunch(8, 100))
    assert refusal is not None
    assert (refusal.parameter, text in refusal.message) == (parameter, True)
    assert refuse_request(request_) is None


@pytest.mark.parametrize("max_tokens", [None, 1, 32, 67])
def test_who_asks_for_all_that_is_left_gets_all_that_fits(max_tokens):
    """67 is what an HTTP request without a limit becomes behind 33 tokens of 100."""
    assert refuse_request(RequestFacts(prompt_tokens=33, max_tokens=max_tokens), BlockLaunch(8, 100)) is None


def test_an_embedding_is_for_a_model_that_embeds():
    assert refuse_request(RequestFacts(pooling=True, task="embed"), pools=True) is None
    refusal = refuse_request(RequestFacts(pooling=True, task="classify"), pools=True)
    assert refusal is not None
    assert "task=classify is not supported on Tenstorrent: allowed embed" in refusal.message


def test_no_parameter_is_both_honoured_and_refused():
    assert not SAMPLED & AROUND
    assert not (SAMPLED | AROUND) & REFUSED.keys()


@pytest.mark.parametrize("request_", [RequestFacts(), RequestFacts(media=frozenset({"image"}))])
def test_an_ordinary_request_is_served(request_):
    assert refuse_request(request_) is None
