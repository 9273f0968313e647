"""Seeds repeat an answer; without one answers differ; greedy ones never do."""

from __future__ import annotations

from typing import Any

import pytest
from tt_api import Api

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

STORY: dict[str, Any] = {"prompt": "My favourite animal is the", "temperature": 1.5, "top_k": 32, "max_tokens": 6}


@pytest.mark.parametrize("seed", [0, 7, 2**31, 2**40 + 1])
def test_tt_a_seed_gives_the_same_answer_again_in_any_batch(api: Api, seed: int) -> None:
    seeded = {**STORY, "seed": seed}
    (alone,) = api.texts(seeded)
    answers = api.texts(STORY, seeded, {**STORY, "seed": seed + 1}, seeded)
    assert (answers[1], answers[3]) == (alone, alone)


def test_tt_a_seed_holds_beside_a_request_that_only_the_host_can_sample(api: Api) -> None:
    """For a part of the answer alone. A server that lets the device draw for seeded requests fails this."""
    seeded = {**STORY, "seed": 11}
    (alone,) = api.texts(seeded)
    assert api.texts(seeded, {**STORY, "min_p": 0.05, "max_tokens": 3})[0] == alone


def test_tt_different_seeds_give_different_answers(api: Api) -> None:
    seeds = [1, 2, 3, 2**32 + 1, 2**40 + 1, 2**40 + 2]
    answers = api.texts(*({**STORY, "seed": seed} for seed in seeds))
    assert len(set(answers)) >= len(seeds) - 1


def test_tt_without_a_seed_answers_differ_within_and_between_batches(api: Api) -> None:
    first, second = (api.texts(*[STORY] * api.rows) for _ in range(2))
    assert len(set(first)) > api.rows // 2
    assert first != second


def test_tt_a_wide_top_k_still_gives_different_answers(api: Api) -> None:
    """Wider than a device samples from."""
    assert len(set(api.texts(*[{**STORY, "top_k": 200}] * 4))) > 1


@pytest.mark.parametrize("narrow", [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-6}], ids=str)
def test_tt_one_candidate_is_no_choice(api: Api, narrow: dict[str, Any]) -> None:
    greedy = {**STORY, "temperature": 0, "top_k": 0}
    assert len(set(api.texts(greedy, *[{**STORY, **narrow}] * 3))) == 1
