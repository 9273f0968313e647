"""The step log: one JSON line a step, for support and for tests that must see what the device was asked."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any


class StepLog:
    """Appends to a file when given a path; counts steps by phase in any case.

    A step's line: step (number), phase, requests, tokens, sampled ("device", "host" or null), because (reasons for the
    host), reload (list of commands), time (s, Unix).
    """

    def __init__(self, path: str | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._file = Path(path).open("a", buffering=1, encoding="utf-8") if path else None  # noqa: SIM115 - closed by close()

    def step(self, phase: str, *, requests: int, tokens: int, **facts: Any) -> None:
        self.counts[phase] += 1
        self.tokens[phase] += tokens
        if self._file is None:
            return
        number = self.counts.total()
        self._write({"step": number, "phase": phase, "requests": requests, "tokens": tokens, **facts})

    def event(self, name: str, **facts: Any) -> None:
        """A line that is not a step: the mesh was opened, closed, the model was loaded."""
        self._write({"event": name, **facts})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps({**line, "time": time.time()}) + "\n")
