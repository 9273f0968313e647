"""Token histories of rows with penalties, as the device sampler takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PAD = -1


class TokenColumns:
    """int32 [rows, L] token ids, -1 beyond a row's tokens. Appending one token touches one cell; L grows by
    doubling."""

    def __init__(self, rows: int) -> None:
        self._table: NDArray[np.int32] = np.full((rows, 64), PAD, dtype=np.int32)
        self._length = [0] * rows

    def set(self, row: int, tokens: Sequence[int]) -> None:
        self.clear(row)
        self._reserve(len(tokens))
        self._table[row, : len(tokens)] = tokens
        self._length[row] = len(tokens)

    def append(self, row: int, token: int) -> None:
        end = self._length[row]
        self._reserve(end + 1)
        self._table[row, end] = token
        self._length[row] = end + 1

    def clear(self, row: int) -> None:
        self._table[row, : self._length[row]] = PAD
        self._length[row] = 0

    def view(self) -> NDArray[np.int32]:
        """The columns in use, at least one; a view that the next append may change."""
        return self._table[:, : max(1, max(self._length))]

    def _reserve(self, length: int) -> None:
        width = self._table.shape[1]
        if length > width:
            while width < length:
                width *= 2
            grown = np.full((self._table.shape[0], width), PAD, dtype=np.int32)
            grown[:, : self._table.shape[1]] = self._table
            self._table = grown


class Histories:
    """Prompt and output histories; only rows with penalties have one. Source: tt-metal contract 1.6, 1.8."""

    def __init__(self, rows: int) -> None:
        self._prompt = TokenColumns(rows)
        self._output = TokenColumns(rows)

    def set(self, row: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        self._prompt.set(row, prompt)
        self._output.set(row, output)

    def append(self, row: int, token: int) -> None:
        self._output.append(row, token)

    def clear(self, row: int) -> None:
        self._prompt.clear(row)
        self._output.clear(row)

    def view(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self._prompt.view(), self._output.view()
