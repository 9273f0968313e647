"""The steps of a run as a Chrome trace, for chrome://tracing or Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tt_scheduler.simulate.run import Run, StepEvent


def trace_events(run: Run) -> list[dict[str, Any]]:
    """One slice a step, one counter for requests and one for the KV cache. Times in microseconds.

    Source: the Trace Event Format, phases X (slice), C (counter) and M (names).
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in ((1, "prefill"), (2, "decode"))
    ]
    for step in run.steps:
        events += _events(step)
    return events


def _events(step: StepEvent) -> list[dict[str, Any]]:
    start = round(step.start * 1e6, 3)
    tid = 1 if step.phase.value == "prefill" else 2
    return [
        {
            "ph": "X",
            "pid": 1,
            "tid": tid,
            "name": step.phase.value,
            "ts": start,
            "dur": round(step.ms * 1e3, 3),
            "args": {"tokens": step.tokens, "users": step.users},
        },
        {
            "ph": "C",
            "pid": 1,
            "name": "requests",
            "ts": start,
            "args": {"running": step.running, "waiting": step.waiting},
        },
        {"ph": "C", "pid": 1, "name": "kv_percent", "ts": start, "args": {"used": round(step.kv_used * 100, 1)}},
    ]


def write_timeline(run: Run, path: Path) -> None:
    """Write the trace as JSON."""
    with path.open("w") as file:
        json.dump({"displayTimeUnit": "ms", "traceEvents": trace_events(run)}, file)
