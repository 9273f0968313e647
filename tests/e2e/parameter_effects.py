"""What each request parameter must do to an answer of the demo model, as functions that look at answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import httpx

MODEL = "demo"
PROMPT = "The sea is"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
REPEATING = "one two three one two three one two three one two"


class Api:
    """The server's two ways to ask, greedy and short unless a test says otherwise."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=120)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._client.post(path, json={"model": MODEL, **body})

    def completion(self, **body: Any) -> dict[str, Any]:
        """The whole reply of /v1/completions."""
        asked = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **body}
        return self._reply("/v1/completions", asked)

    def chat(self, **body: Any) -> dict[str, Any]:
        """The whole reply of /v1/chat/completions."""
        asked = {"messages": QUESTION, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **body}
        return self._reply("/v1/chat/completions", asked)

    def _reply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.post(path, body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def choice(self, **body: Any) -> dict[str, Any]:
        return self.completion(**body)["choices"][0]

    def ids(self, **body: Any) -> list[int]:
        return self.choice(**body)["token_ids"]

    def text(self, **body: Any) -> str:
        return self.choice(**body)["text"]


def temperature(api: Api) -> None:
    warm = [api.ids(temperature=1.8, top_k=32) for _ in range(2)]
    assert warm[0] != warm[1]
    assert api.ids() == api.ids()


def top_p(api: Api) -> None:
    assert api.ids(temperature=1.8, top_k=32, top_p=1e-6) == api.ids()


def top_k(api: Api) -> None:
    assert api.ids(temperature=1.8, top_k=1) == api.ids()


def top_k_beyond_the_device(api: Api) -> None:
    assert len(api.ids(temperature=1.8, top_k=40)) == 8


def min_p(api: Api) -> None:
    assert api.ids(temperature=1.8, min_p=1.0) == api.ids()


def seed(api: Api) -> None:
    one = {"temperature": 1.5, "seed": 2**40 + 1}
    assert api.ids(**one) == api.ids(**one)
    assert api.ids(**one) != api.ids(temperature=1.5, seed=-1)


def n(api: Api) -> None:
    choices = api.completion(temperature=1.5, n=3)["choices"]
    assert len({choice["text"] for choice in choices}) == 3


def presence_penalty(api: Api) -> None:
    plain, other = (api.ids(prompt=REPEATING, max_tokens=12, presence_penalty=value) for value in (0, 2.0))
    assert len(set(other)) > len(set(plain))


def frequency_penalty(api: Api) -> None:
    plain, other = (api.ids(prompt=REPEATING, max_tokens=12, frequency_penalty=value) for value in (0, 2.0))
    assert max(Counter(other).values()) < max(Counter(plain).values())


def repetition_penalty(api: Api) -> None:
    prompt = set(api.choice(prompt=REPEATING)["prompt_token_ids"])
    assert set(api.ids(prompt=REPEATING)) <= prompt
    assert not set(api.ids(prompt=REPEATING, repetition_penalty=8.0)) & prompt


def logit_bias(api: Api) -> None:
    assert api.ids(logit_bias={"339": 100}, ignore_eos=True) == [339] * 8


def allowed_token_ids(api: Api) -> None:
    assert set(api.ids(allowed_token_ids=[339, 340, 341])) <= {339, 340, 341}


def bad_words(api: Api) -> None:
    first = re.findall(r"\w+", api.text())[0]
    assert first not in re.findall(r"\w+", api.text(bad_words=[first]))


def stop(api: Api) -> None:
    word = re.findall(r"\w+", api.text())[2]
    choice = api.choice(stop=[word])
    assert word not in choice["text"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", word)


def include_stop_str_in_output(api: Api) -> None:
    word = re.findall(r"\w+", api.text())[2]
    assert api.text(stop=[word], include_stop_str_in_output=True).endswith(word)


def stop_token_ids(api: Api) -> None:
    third = api.ids()[2]
    assert api.ids(stop_token_ids=[third]) == api.ids()[: api.ids().index(third) + 1]


def min_tokens(api: Api) -> None:
    third = api.ids()[2]
    assert len(api.ids(stop_token_ids=[third], min_tokens=5)) >= 5


def ignore_eos(api: Api) -> None:
    ends = api.chat(max_tokens=64)["choices"][0]["token_ids"]
    goes_on = api.chat(max_tokens=64, ignore_eos=True)["choices"][0]["token_ids"]
    assert len(ends) < len(goes_on) == 64


def max_tokens(api: Api) -> None:
    choice = api.choice(max_tokens=3)
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (3, "length")


def max_completion_tokens(api: Api) -> None:
    reply = api.chat(max_tokens=None, max_completion_tokens=3)
    assert reply["usage"]["completion_tokens"] == 3


def logprobs(api: Api) -> None:
    found = api.choice(logprobs=3)["logprobs"]
    assert len(found["token_logprobs"]) == 8
    for own, top in zip(found["token_logprobs"], found["top_logprobs"], strict=True):
        assert len(top) == 3
        assert own == max(top.values())


def logprobs_of_the_sampled_token(api: Api) -> None:
    found = api.choice(logprobs=0)["logprobs"]
    best = api.choice(logprobs=1)["logprobs"]
    assert len(found["token_logprobs"]) == 8
    for own, other in zip(found["token_logprobs"], best["token_logprobs"], strict=True):
        assert abs(own - other) < 1e-4


def chat_logprobs(api: Api) -> None:
    content = api.chat(logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    assert len(content) == 8
    assert all(len(token["top_logprobs"]) == 2 for token in content)
    assert all(token["logprob"] == token["top_logprobs"][0]["logprob"] for token in content)


def logprob_token_ids(api: Api) -> None:
    found = api.choice(logprobs=0, logprob_token_ids=[339, 340], return_tokens_as_token_ids=True)["logprobs"]
    assert all({"token_id:339", "token_id:340"} <= top.keys() for top in found["top_logprobs"])


def structured_json(api: Api) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    assert isinstance(json.loads(api.text(structured_outputs={"json": schema}, max_tokens=40))["ok"], bool)
    format_ = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    for reply in (api.completion(response_format=format_, max_tokens=40)["choices"][0]["text"],):
        assert isinstance(json.loads(reply)["ok"], bool)


def structured_regex(api: Api) -> None:
    assert re.fullmatch("[0-9]{4}-[0-9]{2}", api.text(structured_outputs={"regex": "[0-9]{4}-[0-9]{2}"}, max_tokens=20))


def structured_choice(api: Api) -> None:
    assert api.text(structured_outputs={"choice": ["yes", "no"]}) in ("yes", "no")


def structured_grammar(api: Api) -> None:
    grammar = 'root ::= "(" [a-c]+ ")"'
    assert re.fullmatch(r"\([abc]{1,6}\)?", api.text(structured_outputs={"grammar": grammar}, max_tokens=6))


def response_format(api: Api) -> None:
    format_ = {"type": "json_object"}
    content = api.chat(response_format=format_, max_tokens=6)["choices"][0]["message"]["content"]
    assert content.lstrip().startswith("{")


def echo(api: Api) -> None:
    assert api.text(echo=True, return_token_ids=False) == PROMPT + api.text()


def truncate_prompt_tokens(api: Api) -> None:
    reply = api.completion(prompt=REPEATING, truncate_prompt_tokens=4)
    assert reply["usage"]["prompt_tokens"] == 4


def truncation_side(api: Api) -> None:
    kept = [
        api.choice(prompt=REPEATING, truncate_prompt_tokens=4, truncation_side=side)["prompt_token_ids"]
        for side in ("left", "right")
    ]
    whole = api.choice(prompt=REPEATING)["prompt_token_ids"]
    assert kept == [whole[-4:], whole[:4]]


def return_token_ids(api: Api) -> None:
    choice = api.choice()
    assert (len(choice["token_ids"]), len(choice["prompt_token_ids"])) == (8, 3)


def return_tokens_as_token_ids(api: Api) -> None:
    found = api.choice(logprobs=1, return_tokens_as_token_ids=True)
    assert found["logprobs"]["tokens"] == [f"token_id:{token}" for token in found["token_ids"]]


def skip_special_tokens(api: Api) -> None:
    asked = {"max_tokens": 24, "ignore_eos": True}
    hidden, shown = (api.chat(**asked, skip_special_tokens=value)["choices"][0] for value in (True, False))
    assert shown["token_ids"] == hidden["token_ids"]
    assert "<|im_end|>" not in hidden["message"]["content"]
    assert "<|im_end|>" in shown["message"]["content"]


def add_special_tokens(api: Api) -> None:
    assert api.ids(add_special_tokens=False) == api.ids()


def stream(api: Api) -> None:
    whole = api.text()
    reply = api.post(
        "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "stream": True}
    ).text.splitlines()
    pieces = [json.loads(line[6:])["choices"][0]["text"] for line in reply if line.startswith("data: {")]
    assert "".join(pieces) == whole
    assert len(pieces) > 3


def stream_interval(api: Api) -> None:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "stream": True, "stream_interval": 4}
    lines = [line for line in api.post("/v1/completions", body).text.splitlines() if line.startswith("data: {")]
    assert len(lines) <= 5


def repetition_detection(api: Api) -> None:
    found = api.choice(prompt=REPEATING, max_tokens=60, repetition_detection={"max_pattern_size": 4, "min_count": 4})
    assert found["finish_reason"] == "repetition"
    assert len(found["token_ids"]) < 60


def use_beam_search(api: Api) -> None:
    choices = api.completion(use_beam_search=True, n=2, max_tokens=4)["choices"]
    assert len({choice["text"] for choice in choices}) == 2


def vllm_xargs(api: Api) -> None:
    assert api.ids(vllm_xargs={"note": "kept"}) == api.ids()


def continue_final_message(api: Api) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "The capital of France is the city of"}]
    reply = api.chat(messages=messages, continue_final_message=True, add_generation_prompt=False)
    assert "Paris" in reply["choices"][0]["message"]["content"]
