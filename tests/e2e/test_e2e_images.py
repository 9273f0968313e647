"""Images over HTTP, as data URI and as local file, beside requests without: every answer is that of transformers."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from client import MODEL

from conftest import HOST, ROOT, Served
from vllm_tt_plugin.serving import Server

sys.path.insert(0, str(ROOT / "tests" / "families"))

from family import Asked
from qwen2_5_vl_family import END, IMAGE, START, VisionReference, picture, write

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

MOST_IMAGES = 3
TEMPLATE = """{%- for message in messages %}{%- for part in message.content -%}
{%- if part.type == "image" %} <|vision_start|><|image_pad|><|vision_end|> {% else %} {{ part.text }} {% endif -%}
{%- endfor %}{%- endfor %}"""


@dataclass(frozen=True)
class Seen:
    """A server for images, the folder that it may read, and what transformers says."""

    served: Served
    folder: Path
    reference: VisionReference


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A random Qwen 2.5-VL, 8 rows, prompts chunked at 96 tokens, sampled on the device."""
    folder = tmp_path_factory.mktemp("seeing")
    model, files = folder / "model", folder / "files"
    files.mkdir()
    model.mkdir()
    write(model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    tt = {"sample_on_device_mode": "all", "step_log": str(folder / "steps.jsonl")}
    server = Server(
        model=str(model),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", "384", "--max-num-seqs", "8", "--dtype", "float32",
            "--max-num-batched-tokens", "96", "--allowed-local-media-path", str(files),
            "--limit-mm-per-prompt", json.dumps({"image": MOST_IMAGES}),
            "--additional-config", json.dumps({"tt": tt}),
        ],
        environ={**HOST, "TT_HOST_STRICT": "1"},
        log=folder / "server.log",
    )  # fmt: skip
    with server:
        yield Seen(Served(server, folder / "steps.jsonl"), files, VisionReference(model))
        assert server.stop() == 0


def part(item: Any, folder: Path, number: int) -> dict[str, Any]:
    """One part of a message: tokens as words, an image in turn as data URI or as a file."""
    if isinstance(item, list):
        return {"type": "text", "text": " ".join(f"w{token}" for token in item)}
    buffer = io.BytesIO()
    item.save(buffer, "PNG")
    if number % 2:
        (folder / f"{number}.png").write_bytes(buffer.getvalue())
        return {"type": "image_url", "image_url": {"url": f"file://{folder}/{number}.png"}}
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def body(parts: Sequence[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": list(parts)}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "return_token_ids": True,
    }


async def ask(url: str, bodies: Sequence[dict[str, Any]]) -> list[httpx.Response]:
    async with httpx.AsyncClient(timeout=300) as client:
        return await asyncio.gather(*(client.post(f"{url}/v1/chat/completions", json=one) for one in bodies))


def words(count: int, seed: int) -> list[int]:
    return [3 + (seed * 37 + 11 * i * i) % 300 for i in range(count)]


MESSAGES: list[list[Any]] = [
    [words(20, 1)],
    [picture(24, 40, seed=20), words(30, 2)],
    [words(92, 3), picture(64, 56, seed=21), words(40, 4)],
    [words(5, 5), picture(8, 8, seed=22), picture(48, 16, seed=23), words(9, 6), picture(32, 32, seed=24)],
    [words(150, 7)],
    [words(63, 8), picture(24, 40, seed=20)],
    [picture(16, 24, seed=25), words(120, 9), picture(64, 64, seed=26), words(3, 10)],
    [words(1, 11)],
    [picture(8, 64, seed=27), words(2, 12)],
    [words(64, 13), picture(40, 8, seed=28), words(64, 14)],
    [words(31, 15), picture(56, 56, seed=29)],
    [words(200, 16), picture(8, 24, seed=30), words(20, 17)],
]


def asked(message: Sequence[Any], max_tokens: int) -> Asked:
    tokens = [token for item in message for token in (item if isinstance(item, list) else [START, IMAGE, END])]
    return Asked(tokens, max_tokens, tuple(item for item in message if not isinstance(item, list)))


def test_e2e_images_by_data_uri_and_by_file_beside_text_are_exact(seeing: Seen) -> None:
    """Twelve at once in eight rows."""
    bodies = [
        body([part(item, seeing.folder, 10 * i + k) for k, item in enumerate(message)], 12 + 3 * i)
        for i, message in enumerate(MESSAGES)
    ]
    answers = asyncio.run(ask(seeing.served.url, bodies))
    assert [answer.status_code for answer in answers] == [200] * len(bodies), answers[0].text
    wrong = [
        i
        for i, (message, answer) in enumerate(zip(MESSAGES, answers, strict=True))
        if answer.json()["choices"][0]["token_ids"] != seeing.reference.answer(asked(message, 12 + 3 * i))
    ]
    assert not wrong
    assert max(step["requests"] for step in seeing.served.steps() if step["phase"] == "decode") > 4


def refused_parts(folder: Path) -> dict[str, tuple[list[dict[str, Any]], str]]:
    """Parts of a message that cannot be served, and a word of the answer."""
    data = "data:video/mp4;base64,AAAA"
    image = part(picture(16, 16, seed=1), folder, 0)
    return {
        "video": ([{"type": "video_url", "video_url": {"url": data}}], "video"),
        "audio": ([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}], "audio"),
        "too many images": ([image] * (MOST_IMAGES + 1), "image"),
        "a file elsewhere": ([{"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}], "media"),
        "no image": ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "image"),
    }


def test_e2e_media_that_is_not_served_is_refused_alone(seeing: Seen) -> None:
    """Each is HTTP 400 for the one request; those beside it are answered, and so is the next."""
    refused = refused_parts(seeing.folder)
    bodies = [body([*parts, part(words(4, 1), seeing.folder, 0)], 4) for parts, _ in refused.values()]
    good = body([part(item, seeing.folder, k) for k, item in enumerate(MESSAGES[3])], 8)
    answers = asyncio.run(ask(seeing.served.url, [*bodies, good]))
    for (name, (_, word)), answer in zip(refused.items(), answers[:-1], strict=True):
        assert answer.status_code == 400, (name, answer.text)
        assert word in answer.text.lower(), (name, answer.text)
    assert answers[-1].json()["choices"][0]["token_ids"] == seeing.reference.answer(asked(MESSAGES[3], 8))
    again = asyncio.run(ask(seeing.served.url, [good]))
    assert again[0].status_code == 200
