"""A prompt of several chunks is remembered from its first token to its last."""

from __future__ import annotations

import pytest
from tt_api import Api

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

# No model ends these sentences so by itself.
FACTS = (
    ("On Monday the captain hid the golden key under the old", "violin"),
    ("On Tuesday the baker sold eleven loaves to a man with a green", "trumpet"),
    ("On Wednesday the doctor painted the kitchen door in bright", "copper"),
    ("On Thursday the children found a map inside a broken", "piano"),
    ("On Friday the farmer traded his horse for a silver", "telescope"),
)
FILLER = "The train left the station in the rain, and nobody on it was in a hurry. "
LONGEST = 4096


def long_prompt(api: Api, place: int) -> tuple[str, str]:
    """Facts spread over most of the context, and at its end the beginning of the one at this place; the word that
    ends it. Each place has its own order, so that no two prompts share a cached prefix."""
    facts = FACTS[place:] + FACTS[:place]
    room = min(api.max_model_len, LONGEST) - 140
    filler = FILLER * (room // (len(FACTS) * len(api.tokens(FILLER))))
    begun, word = facts[place]
    return "".join(f"{begun} {word}. {filler}" for begun, word in facts) + begun, word


def first_words(texts: list[str]) -> list[str]:
    return [text.split()[0].strip(".,") for text in texts]


@pytest.mark.parametrize("place", range(len(FACTS)))
def test_tt_a_fact_is_recalled_from_every_part_of_a_long_prompt(api: Api, place: int) -> None:
    prompt, word = long_prompt(api, place)
    assert first_words([api.text(prompt, max_tokens=3)]) == [word]


def test_tt_long_and_short_prompts_at_once_do_not_mix(api: Api) -> None:
    short = [(f"{begun} {word}. {FILLER}{begun}", word) for begun, word in FACTS]
    asked = [long_prompt(api, 1), *short, long_prompt(api, 3)]
    answers = api.texts(*({"prompt": "Again. " + prompt, "max_tokens": 3} for prompt, _ in asked))
    assert first_words(answers) == [word for _, word in asked]
