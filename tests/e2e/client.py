"""Requests to a server, as token ids, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
from reference import Case

MODEL = "demo"


def body_of(case: Case, prompt: Sequence[int], **more: Any) -> tuple[str, dict[str, Any]]:
    """Path and body of a case's request."""
    common = {"model": MODEL, "temperature": 0, "max_tokens": case.max_tokens, "return_token_ids": True, **more}
    if case.chat is not None:
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": case.chat}], **common}
    return "/v1/completions", {"prompt": list(prompt), **common}


async def generate(url: str, case: Case, prompt: Sequence[int], **more: Any) -> list[int]:
    """Stream a whole answer; returns its token ids."""
    ids: list[int] = []
    path, body = body_of(case, prompt, stream=True, **more)
    async with httpx.AsyncClient(timeout=300) as client, client.stream("POST", url + path, json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            ids += ids_in(line)
    return ids


async def cancel_after(url: str, case: Case, prompt: Sequence[int], tokens: int) -> list[int]:
    """Stream an answer and hang up after some tokens; returns the ids seen."""
    ids: list[int] = []
    path, body = body_of(case, prompt, stream=True, ignore_eos=True)
    async with httpx.AsyncClient(timeout=300) as client, client.stream("POST", url + path, json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            ids += ids_in(line)
            if len(ids) >= tokens:
                break
    return ids


def ids_in(line: str) -> list[int]:
    """Token ids in one line of a stream."""
    if not line.startswith("data: ") or line == "data: [DONE]":
        return []
    choices = json.loads(line[6:])["choices"]
    return list(choices[0].get("token_ids") or ()) if choices else []


async def staggered(jobs: Sequence[Any], gap: float) -> list[Any]:
    """Start the coroutines `gap` seconds apart and gather their results."""

    async def later(job: Any, delay: float) -> Any:
        await asyncio.sleep(delay)
        return await job

    return list(await asyncio.gather(*(later(job, i * gap) for i, job in enumerate(jobs))))


def metric(url: str, name: str) -> float:
    """Sum of a Prometheus metric over its labels."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{"))]
    if not values:
        raise KeyError(f"the server has no metric {name}")
    return sum(values)
