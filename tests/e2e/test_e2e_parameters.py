"""Every request parameter has its effect on the running server, or is refused. The docs are the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from parameter_effects import PROMPT, QUESTION, Api
from parameter_table import CHAT, COMPLETIONS, DEVICE, EFFECTS, ELSEWHERE, HOST, REFUSALS, Effect, Refusal, named, page

from conftest import ROOT

if TYPE_CHECKING:
    from conftest import Served

pytestmark = [pytest.mark.default_row, pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]


def fields(path: str) -> set[str]:
    """The request fields of this vLLM release."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    return set((ChatCompletionRequest if path == CHAT else CompletionRequest).model_fields)


def id_of(case: Effect | Refusal) -> str:
    return f"{case.name}={case.value}"


@pytest.fixture(scope="module")
def api(served: Served) -> Api:
    return Api(served.url)


@pytest.mark.parametrize("case", EFFECTS, ids=id_of)
def test_e2e_a_parameter_has_its_effect(case: Effect, served: Served, api: Api) -> None:
    """And its steps are sampled where the table says."""
    name = case.name.split(",")[0].split()[0]
    if name not in fields(CHAT) | fields(COMPLETIONS):
        pytest.skip("not in this release")
    before = len(served.steps())
    case.check(api)
    places = {step["sampled"] for step in served.steps()[before:]} - {None}
    if case.where == HOST:
        assert HOST in places
    else:
        assert places == {DEVICE}


@pytest.mark.parametrize("case", REFUSALS, ids=id_of)
def test_e2e_a_parameter_is_refused_with_400(case: Refusal, served: Served, api: Api) -> None:
    if not case.body.keys() <= fields(case.path):
        pytest.skip("not in this release")
    before = len(served.steps())
    prompt = {"messages": QUESTION} if case.path == CHAT else {"prompt": PROMPT}
    reply = api.post(case.path, {**prompt, "max_tokens": 2, **case.body})
    assert reply.status_code == 400, reply.text
    assert case.says in reply.text
    assert ("not supported on Tenstorrent" in reply.text) == (case.by == "tt")
    assert len(served.steps()) == before


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_e2e_no_request_field_is_missing_from_the_table(path: str) -> None:
    """A field that a new release adds is missing here until somebody has looked at it."""
    assert fields(path) - named() - ELSEWHERE == set()


def test_e2e_the_parameter_page_is_the_table() -> None:
    """Write it again with `python tests/e2e/parameter_table.py > docs/parameters.md`."""
    assert (ROOT / "docs" / "parameters.md").read_text() == page()
