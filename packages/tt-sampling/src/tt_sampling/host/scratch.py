"""Working memory that lives as long as the sampler."""

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 1 << 18
"""Floats worked on at a time: rows are taken in chunks whose intermediate values stay in the cache."""


class Scratch:
    """A float32 buffer handed out in chunks of whole rows."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)

    def chunks(self, rows: int, vocab: int) -> Iterator[tuple[slice, Tensor]]:
        """Slices that cover `rows` in order, each with a [rows of the slice, vocab] buffer of undefined content."""
        step = max(1, CHUNK // vocab)
        if self._buffer.numel() < step * vocab:
            self._buffer = torch.empty(step * vocab)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield slice(start, stop), self._buffer[: (stop - start) * vocab].view(-1, vocab)
