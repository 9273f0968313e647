"""Requests to simulate: a recorded trace or a random mix."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a workload.

    at:      seconds after the start
    prompt:  prompt tokens
    output:  tokens that it generates
    """

    at: float
    prompt: int
    output: int

    def __post_init__(self) -> None:
        if self.at < 0 or self.prompt < 1 or self.output < 1:
            raise ValueError(f"a request arrives at a time of 0 or later and has a prompt and an output: {self}")


def read_trace(
    path: Path, stretch: float = 1.0, seconds: float | None = None, max_prompt: int | None = None
) -> list[Arrival]:
    """Read a CSV trace with the columns TIMESTAMP, ContextTokens, GeneratedTokens.

    stretch:     factor on the time between arrivals; 4.0 thins the load to a quarter and keeps its shape
    seconds:     keep arrivals before this time (after stretching)
    max_prompt:  longest prompt in tokens; longer ones are cut
    Raises ValueError that names the file and what is missing.
    """
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path} has no column {', '.join(missing)}: a trace has {','.join(COLUMNS)}")
        rows = [(_seconds(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in reader]
    if not rows:
        raise ValueError(f"{path} has no request")
    start = min(at for at, _, _ in rows)
    arrivals = [
        Arrival((at - start) * stretch, max(1, min(prompt, max_prompt or prompt)), max(1, output))
        for at, prompt, output in sorted(rows)
    ]
    return [arrival for arrival in arrivals if seconds is None or arrival.at < seconds]


def _seconds(stamp: str) -> float:
    # Traces carry seven digits of a second, datetime takes six.
    head, _, digits = stamp.partition(".")
    return datetime.fromisoformat(head).timestamp() + float(f"0.{digits or 0}")


def poisson(
    rate: float, seconds: float, prompts: Sequence[int], outputs: Sequence[int], seed: int = 0
) -> list[Arrival]:
    """A Poisson mix: `rate` requests a second, prompt and output lengths drawn evenly from the given ones."""
    if rate <= 0 or seconds <= 0:
        raise ValueError(f"rate is {rate} and seconds is {seconds}: both must be positive")
    draw = random.Random(seed)
    arrivals: list[Arrival] = []
    at = draw.expovariate(rate)
    while at < seconds:
        arrivals.append(Arrival(at, draw.choice(prompts), draw.choice(outputs)))
        at += draw.expovariate(rate)
    return arrivals
