"""A request's answer is its own, whoever shares the batch and whatever they ask."""

from __future__ import annotations

import pytest
from tt_api import Api, Refused

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

SUBJECTS = ("sea", "moon", "desert", "forest", "kitchen", "railway", "violin", "winter")


def prompts(count: int) -> list[str]:
    """Different prompts of different lengths."""
    return [f"{'Listen. ' * (i % 5)}Number {i}, about the {SUBJECTS[i % len(SUBJECTS)]}: the" for i in range(count)]


def test_tt_a_full_batch_answers_as_each_request_alone(api: Api) -> None:
    asked = [{"prompt": prompt} for prompt in prompts(api.rows)]
    alone = [api.texts(body)[0] for body in asked[:3]]
    assert api.texts(*asked)[:3] == alone


def test_tt_equal_requests_in_one_batch_get_equal_answers(api: Api) -> None:
    assert len(set(api.texts(*[{"prompt": "The sea is"}] * api.rows))) == 1


def test_tt_more_requests_than_rows_are_all_answered_as_before(api: Api) -> None:
    asked = [{"prompt": prompt, "max_tokens": 3} for prompt in prompts(2 * api.rows + 1)]
    assert api.texts(*asked) == api.texts(*reversed(asked))[::-1]


def test_tt_a_neighbours_parameters_do_not_reach_a_plain_request(api: Api) -> None:
    plain = {"prompt": "The sea is"}
    token = str(api.tokens(" fish")[0])
    neighbours = [
        {"temperature": 1.9, "seed": 3},
        {"frequency_penalty": 2.0, "presence_penalty": 2.0, "repetition_penalty": 2.0},
        {"logit_bias": {token: 100}},
        {"logprobs": 3},
    ]
    alone = api.text(**plain)
    answers = api.texts(plain, *({"prompt": "The sea is", **one} for one in neighbours), plain)
    assert (answers[0], answers[-1]) == (alone, alone)


def test_tt_a_refused_request_leaves_the_others_alone(api: Api) -> None:
    plain = {"prompt": "The sea is"}
    alone = api.text(**plain)
    first, refused, last = api.many(plain, {"prompt": "The moon is", "prompt_logprobs": 1}, plain)
    assert isinstance(refused, Refused)
    assert [answer["text"] for answer in (first, last) if not isinstance(answer, Refused)] == [alone, alone]


def test_tt_a_client_that_hangs_up_leaves_nothing_behind(api: Api) -> None:
    """Its row is used again by the requests that follow."""
    alone = api.text("The sea is")
    for _ in range(2):
        api.hang_up("Count for a long time: one, two, three,", max_tokens=256, ignore_eos=True)
    assert set(api.texts(*[{"prompt": "The sea is"}] * api.rows)) == {alone}
