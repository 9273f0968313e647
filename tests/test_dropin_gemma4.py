"""`--reasoning-parser gemma4 --tool-call-parser gemma4`: every release of the matrix brings both under these names, so
the plugin registers none. What launch scripts rely on is shown here for the release that is installed."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.vllm]

NAME = "gemma4"
QUOTE = '<|"|>'
MARKS = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", QUOTE, "<|turn>", "<turn|>", "<|tool_response>"]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
THOUGHT = "<|channel>thought\nIs it far?<channel|>It rains in Oslo."
CALLS = (
    f"Wait.<|tool_call>call:weather{{city:{QUOTE}Oslo (north){QUOTE},days:3}}<tool_call|>"
    f"<|tool_call>call:weather{{city:{QUOTE}Århus, Jylland{QUOTE}}}<tool_call|>"
)
ARGUMENTS = [{"city": "Oslo (north)", "days": 3}, {"city": "Århus, Jylland"}]


@cache
def tokenizer() -> Any:
    """A token for each byte, and Gemma 4's marks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bytewise = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bytewise, additional_special_tokens=MARKS)


def request() -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], tools=TOOLS)


def reasoning_parser() -> Any:
    from vllm.reasoning import ReasoningParserManager

    return ReasoningParserManager.get_reasoning_parser(NAME)(tokenizer())


def tool_parser() -> Any:
    from vllm.tool_parsers import ToolParserManager

    return ToolParserManager.get_tool_parser(NAME)(tokenizer(), request().tools)


def deltas(text: str, cuts: set[int]) -> list[tuple[Any, ...]]:
    """The arguments of a streaming call for each piece of the text, cut between tokens as a server cuts it: a piece
    ends where the text so far is whole."""
    ids = tokenizer()(text, add_special_tokens=False)["input_ids"]
    pieces, before, seen = [], "", 0
    for end in sorted({cut for cut in cuts if cut < len(ids)} | {len(ids)}):
        now = tokenizer().decode(ids[:end], skip_special_tokens=False)
        if end > seen and not now.endswith("\ufffd"):
            pieces.append((before, now, now[len(before) :], ids[:seen], ids[:end], ids[seen:end]))
            before, seen = now, end
    return pieces


CUTS = st.sets(st.integers(1, 200), max_size=40) | st.just(set(range(200)))


def test_a_whole_answer_is_parted_into_thought_and_answer() -> None:
    assert reasoning_parser().extract_reasoning(THOUGHT, request()) == ("Is it far?", "It rains in Oslo.")


def test_a_whole_answer_is_parted_into_text_and_calls() -> None:
    found = tool_parser().extract_tool_calls(CALLS, request())
    assert found.content == "Wait."
    assert [call.function.name for call in found.tool_calls] == ["weather", "weather"]
    assert [json.loads(call.function.arguments) for call in found.tool_calls] == ARGUMENTS


@settings(max_examples=40)
@given(CUTS)
def test_any_split_of_a_thought_gives_the_whole(cuts: set[int]) -> None:
    parser = reasoning_parser()
    parts = [parser.extract_reasoning_streaming(*piece) for piece in deltas(THOUGHT, cuts)]
    assert "".join(part.reasoning or "" for part in parts if part) == "Is it far?"
    assert "".join(part.content or "" for part in parts if part) == "It rains in Oslo."


@settings(max_examples=40)
@given(CUTS)
def test_any_split_of_two_calls_gives_the_whole(cuts: set[int]) -> None:
    parser, asked = tool_parser(), request()
    parts = [parser.extract_tool_calls_streaming(*piece, asked) for piece in deltas(CALLS, cuts)]
    names, arguments = ["", ""], ["", ""]
    for call in (call for part in parts if part for call in part.tool_calls or ()):
        names[call.index] += call.function.name or ""
        arguments[call.index] += call.function.arguments or ""
    assert "".join(part.content or "" for part in parts if part) == "Wait."
    assert names == ["weather", "weather"]
    assert list(map(json.loads, arguments)) == ARGUMENTS
