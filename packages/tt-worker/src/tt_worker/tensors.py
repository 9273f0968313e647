"""Tensors over arrays."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

_MOST = 64


def tensor_over(array: NDArray[Any]) -> torch.Tensor:
    """The tensor that shares this array's memory."""
    return torch.from_numpy(array)


class Tensors:
    """A tensor over each array that comes again, as the inputs of decode steps do, whose memory is reused.

    At a step's pace torch's own code is cold, and a conversion of half a microsecond takes ten.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[NDArray[Any], torch.Tensor]] = {}

    def of(self, array: NDArray[Any]) -> torch.Tensor:
        """See `tensor_over`."""
        known = self._known.get(id(array))
        if known is not None:  # which keeps the array, so that no other has its id
            return known[1]
        if len(self._known) >= _MOST:
            self._known.clear()
        tensor = tensor_over(array)
        self._known[id(array)] = (array, tensor)
        return tensor
