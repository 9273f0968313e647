"""Serve SmolLM2-135M-Instruct on the software mesh, ask it a question, show the answer and what the server did, stop.

    python examples/demo.py                  one question, then stop
    python examples/demo.py --keep           keep the server up until Ctrl-C

Needs no Tenstorrent card and no model hub.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from tt_hostmesh.checkpoint import ensure, steps
from vllm_tt_plugin.serving import Server

QUESTION = "What is the capital of France?"
console = Console()


def main() -> int:
    options = parse_arguments()
    with steps() as step:
        model = ensure(step=step)
    with tempfile.TemporaryDirectory(prefix="vllm-tt-demo-") as folder:
        log = Path(folder)
        server = demo_server(str(model), log, options.port)
        with console.status("Starting vLLM on the software mesh") as status:
            server.start(waiting=lambda s: status.update(f"Starting vLLM on the software mesh ({s:.0f} s)"))
        console.print(f"vLLM answers at {server.url}/v1")
        try:
            speed = ask(server, QUESTION)
            if options.keep:
                console.print("Press Ctrl-C to stop.")
                wait_for_interrupt()
        finally:
            with console.status("Stopping"):
                code = server.stop()
        events = [json.loads(line) for line in (log / "steps.jsonl").read_text().splitlines()]
        closed = "Closed the device mesh" in server.log.read_text()
        console.print(summary(events, speed))
    if code != 0 or not closed:
        console.print(f"[red]The server did not stop cleanly: exit code {code}, mesh closed: {closed}")
        return 1
    console.print("Stopped cleanly: exit code 0, mesh closed, no process left.")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep the server up until Ctrl-C")
    parser.add_argument("--port", type=int, default=None, help="TCP port (default: a free one)")
    return parser.parse_args()


def demo_server(model: str, folder: Path, port: int | None) -> Server:
    tt = {"sample_on_device_mode": "all", "step_log": str(folder / "steps.jsonl")}
    server = Server(
        model=model,
        arguments=[
            "--served-model-name", "SmolLM2-135M-Instruct",
            "--max-model-len", "2048",
            "--max-num-seqs", "8",
            "--additional-config", json.dumps({"tt": tt}),
        ],
        environ={
            "TT_RUNTIME": "host",
            # Half a gigabyte of KV cache instead of a device's whole memory.
            "TT_HOST_MAX_TOKENS_ALL_USERS": "16384",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        },
        log=folder / "server.log",
    )  # fmt: skip
    if port is not None:
        server.port = port
    return server


def ask(server: Server, question: str) -> float:
    """Stream one answer to the terminal. Returns tokens per second after the first."""
    console.print(f"\n[bold]Question[/bold] {question}")
    console.print("[bold]Answer[/bold]   ", end="")
    times: list[float] = []
    for text in stream(server, question):
        times.append(time.perf_counter())
        console.print(text, end="", highlight=False)
    console.print("\n")
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0


def stream(server: Server, question: str) -> Iterator[str]:
    body: dict[str, Any] = {
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 64,
        "stream": True,
    }
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=120) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                delta = json.loads(line[6:])["choices"][0]["delta"]
                if delta.get("content"):
                    yield delta["content"]


def summary(events: list[dict[str, Any]], speed: float) -> Table:
    mesh = next(event for event in events if event.get("event") == "mesh opened")
    steps = Counter(event["phase"] for event in events if "phase" in event)
    sampled = Counter(event["sampled"] for event in events if event.get("sampled"))
    table = Table(title="What the server did", show_header=False, title_justify="left")
    table.add_row("Platform", "tt")
    table.add_row("Runtime", f"{mesh['runtime']} (software mesh: no Tenstorrent card was used)")
    table.add_row("Mesh", mesh["grid"])
    table.add_row("vLLM", version("vllm"))
    table.add_row("Steps", f"{steps['prefill']} prefill, {steps['decode']} decode, 0 mixed")
    table.add_row("Sampled", ", ".join(f"{count} steps on the {where}" for where, count in sampled.items()))
    table.add_row("Speed", f"{speed:.1f} tokens per second for one request")
    return table


def wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print()


if __name__ == "__main__":
    sys.exit(main())
