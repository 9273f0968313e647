"""Structured answers follow their grammar, alone and beside requests without one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tt_api import Api

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome", "Oslo"]},
        "rank": {"type": "integer", "minimum": 1, "maximum": 9},
        "capital": {"type": "boolean"},
    },
    "required": ["city", "rank", "capital"],
    "additionalProperties": False,
}
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Describe a city in JSON."}], "max_tokens": 48}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}}
PLATE: dict[str, Any] = {"structured_outputs": {"regex": "[A-Z]{2}-[0-9]{3}"}, "max_tokens": 24}
CHOICE: dict[str, Any] = {"structured_outputs": {"choice": ["yes", "no", "perhaps"]}, "max_tokens": 16}


def right(text: str) -> bool:
    """Whether it is one object of the schema, written without free whitespace."""
    found = json.loads(text)
    assert found.keys() == set(SCHEMA["required"])
    assert found["city"] in ("Paris", "Rome", "Oslo")
    assert found["rank"] in range(1, 10)
    assert isinstance(found["capital"], bool)
    return re.search(r"\n|  ", text) is None


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_tt_json_follows_its_schema(api: Api, temperature: float) -> None:
    assert all(map(right, api.texts(*[{**ASKED, **JSON, "temperature": temperature, "seed": 5}] * 2)))


def test_tt_a_regex_and_a_choice_are_followed(api: Api) -> None:
    asked = {"prompt": "The number plate of my car is", "temperature": 1.0}
    plate, choice = api.texts({**asked, **PLATE}, {**asked, **CHOICE})
    assert re.fullmatch("[A-Z]{2}-[0-9]{3}", plate)
    assert choice in ("yes", "no", "perhaps")


def test_tt_grammars_and_plain_requests_share_a_batch(api: Api) -> None:
    """Each keeps its own mask; the plain ones have none."""
    plain = {"prompt": "The sea is"}
    alone = api.text(**plain)
    answers = api.texts(plain, {**ASKED, **JSON}, {"prompt": "A plate:", **PLATE}, plain, {**ASKED, **JSON})
    assert (answers[0], answers[3]) == (alone, alone)
    assert right(answers[1])
    assert right(answers[4])
    assert re.fullmatch("[A-Z]{2}-[0-9]{3}", answers[2])


def test_tt_a_full_batch_of_grammars_is_followed_by_all(api: Api) -> None:
    assert all(map(right, api.texts(*[{**ASKED, **JSON}] * api.rows)))
