"""The whole stack: real vLLM, real HTTP, a real model, the strict software mesh."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from client import MODEL, cancel_after, generate, metric, staggered
from reference import CASES, Case

if TYPE_CHECKING:
    from conftest import Served

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.every_row, pytest.mark.slow]


def test_e2e_24_staggered_requests_are_exact(served: Served, reference: Any) -> None:
    """8 rows for 24 requests: rows are reused, requests queue, prompts are chunked, decode is overlapped."""
    prompts = {case.name: reference.prompt(case) for case in CASES}
    jobs = [generate(served.url, case, prompts[case.name]) for case in CASES]
    answers = asyncio.run(staggered(jobs, gap=0.15))
    wrong = [case.name for case, answer in zip(CASES, answers, strict=True) if answer != reference.answer(case)]
    assert len(CASES) == 24
    assert not wrong


def test_e2e_no_step_mixes_prefill_and_decode(served: Served, reference: Any) -> None:
    """The step log is written where the model is called. A mixed step would be refused by the runner before that."""
    case = CASES[0]
    asyncio.run(staggered([generate(served.url, case, reference.prompt(case)) for _ in range(4)], gap=0.1))
    steps = served.steps()
    assert {step["phase"] for step in steps} == {"prefill", "decode"}
    assert all(step["tokens"] == step["requests"] for step in steps if step["phase"] == "decode")
    assert max(step["requests"] for step in steps) <= 8


def test_e2e_cancelled_requests_leave_the_others_exact_and_all_blocks_free(served: Served, reference: Any) -> None:
    """Half the clients hang up in mid-stream."""
    kept = CASES[:4] + CASES[8:12]
    dropped = [Case(f"dropped{i}", 200, tokens=40 + 11 * i) for i in range(8)]
    jobs: list[Any] = []
    for stay, leave in zip(kept, dropped, strict=True):
        jobs.append(generate(served.url, stay, reference.prompt(stay)))
        jobs.append(cancel_after(served.url, leave, reference.prompt(leave), tokens=5))
    answers = asyncio.run(staggered(jobs, gap=0.1))
    for case, answer in zip(kept, answers[::2], strict=True):
        assert answer == reference.answer(case), case.name
    deadline = time.monotonic() + 30
    while metric(served.url, "vllm:num_requests_running") or metric(served.url, "vllm:kv_cache_usage_perc"):
        assert time.monotonic() < deadline, "blocks or requests are still held after every client left"
        time.sleep(0.2)


def test_e2e_a_chat_answer_streams_and_is_right(served: Served) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 32,
    }
    whole = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=120).json()
    text = whole["choices"][0]["message"]["content"]
    assert "Paris" in text
    pieces: list[str] = []
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json={**body, "stream": True}, timeout=120) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                pieces.append(httpx.Response(200, text=line[6:]).json()["choices"][0]["delta"].get("content") or "")
    assert "".join(pieces) == text
    assert sum(map(bool, pieces)) > 3, "the answer came in one piece"


def test_e2e_a_request_that_cannot_be_served_is_refused_alone(served: Served, reference: Any) -> None:
    """Prompt logprobs: HTTP 400 that names the parameter, while another request runs on undisturbed."""
    case = CASES[3]

    async def both() -> tuple[list[int], httpx.Response]:
        running = asyncio.create_task(generate(served.url, case, reference.prompt(case)))
        async with httpx.AsyncClient(timeout=60) as client:
            body = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 2, "prompt_logprobs": 1}
            refused = await client.post(f"{served.url}/v1/completions", json=body)
        return await running, refused

    answer, refused = asyncio.run(both())
    assert refused.status_code == 400
    assert "prompt_logprobs" in refused.text
    assert answer == reference.answer(case)


def test_e2e_host_sampled_requests_share_the_server(served: Served, reference: Any) -> None:
    """A request with logprobs moves its steps to the host; greedy answers beside it do not change."""
    case = CASES[1]

    async def both() -> tuple[list[int], dict[str, Any]]:
        running = asyncio.create_task(generate(served.url, case, reference.prompt(case)))
        async with httpx.AsyncClient(timeout=60) as client:
            body = {"model": MODEL, "prompt": "The sea is", "max_tokens": 8, "temperature": 0, "logprobs": 3}
            with_logprobs = await client.post(f"{served.url}/v1/completions", json=body)
        return await running, with_logprobs.json()

    answer, reply = asyncio.run(both())
    assert answer == reference.answer(case)
    logprobs = reply["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == 8
    assert all(len(top) >= 3 for top in logprobs["top_logprobs"])
    for chosen, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert chosen == pytest.approx(max(top.values())), "greedy takes the most likely token"
    assert {step["sampled"] for step in served.steps() if step["sampled"]} == {"device", "host"}
