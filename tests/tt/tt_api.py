"""Requests to any server with vLLM's OpenAI API: one, or many at once. Answers are compared as text."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

TIMEOUT = 600.0


class Refused(Exception):
    """The server answered with an error. status: the HTTP code;  said: its text."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status}: {said}")
        self.status = status
        self.said = said


class Api:
    """model: None for the first that the server names;  rows: requests that it runs at once."""

    def __init__(self, url: str, model: str | None, rows: int) -> None:
        self._url = url
        self.rows = rows
        cards = httpx.get(f"{url}/v1/models", timeout=30).raise_for_status().json()["data"]
        card = next((card for card in cards if model in (None, card["id"])), None)
        if card is None:
            raise ValueError(f"--tt-model-name {model}: allowed {[card['id'] for card in cards]}")
        self.model = card["id"]
        self.max_model_len = int(card.get("max_model_len") or 2048)

    def many(self, *bodies: dict[str, Any]) -> list[dict[str, Any] | Refused]:
        """The first choice of each request, all sent at once; a request that is refused answers with that."""

        async def ask() -> list[dict[str, Any] | Refused]:
            async with httpx.AsyncClient(timeout=TIMEOUT, limits=httpx.Limits(max_connections=None)) as client:
                return list(await asyncio.gather(*(self._ask(client, body) for body in bodies)))

        return asyncio.run(ask())

    async def _ask(self, client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any] | Refused:
        path = "chat/completions" if "messages" in body else "completions"
        asked = {"model": self.model, "temperature": 0, "max_tokens": 8, **body}
        reply = await client.post(f"{self._url}/v1/{path}", json=asked)
        if reply.status_code != 200:
            return Refused(reply.status_code, reply.text)
        return reply.json()["choices"][0]

    def choices(self, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
        """As `many`. Raises Refused when one of them is."""
        answers = self.many(*bodies)
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return [answer for answer in answers if not isinstance(answer, Refused)]

    def texts(self, *bodies: dict[str, Any]) -> list[str]:
        """The texts of the answers to requests sent at once."""
        return [text_of(choice) for choice in self.choices(*bodies)]

    def text(self, prompt: str, **fields: Any) -> str:
        return self.texts({"prompt": prompt, **fields})[0]

    def refusal(self, **body: Any) -> Refused:
        """What the server says against a request. Raises AssertionError when it says nothing."""
        (answer,) = self.many(body)
        if not isinstance(answer, Refused):
            raise AssertionError(f"this request was served: {body}")
        return answer

    def hang_up(self, prompt: str, **fields: Any) -> None:
        """Start a stream and leave it after its first piece."""
        body = {"model": self.model, "prompt": prompt, "temperature": 0, "stream": True, **fields}
        with httpx.stream("POST", f"{self._url}/v1/completions", json=body, timeout=TIMEOUT) as reply:
            reply.raise_for_status()
            next(reply.iter_lines())

    def tokens(self, text: str) -> list[int]:
        """The token ids of a text, without those that a prompt would get in front."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        reply = httpx.post(f"{self._url}/tokenize", json=body, timeout=30).raise_for_status()
        return list(reply.json()["tokens"])


def text_of(choice: dict[str, Any]) -> str:
    return choice["message"]["content"] if "message" in choice else choice["text"]
