"""A progress line on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

WIDTH = 30


class Progress:
    """Draws a bar with a name on a terminal, and nothing where the stream is none."""

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()

    def __call__(self, share: float) -> None:
        """Show this share (0 to 1) as done."""
        if self._shown:
            done = round(WIDTH * share)
            self._stream.write(f"\r{self._name:24s} [{'#' * done}{'.' * (WIDTH - done)}] {share:4.0%}")
            self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self(1.0)
            self._stream.write("\n")
