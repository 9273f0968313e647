"""The best token of each line, where nothing else is asked of the logits."""

import torch
from torch import Tensor

from tt_sampling.host.blocks import argmax, split

try:
    import numpy
except ImportError:
    numpy = None


def best_of_lines(logits: Tensor) -> Tensor:
    """The best token of each of contiguous float32 logits [n, V], the lowest id among equals: int64 [n].

    numpy's argmax is vectorised and torch's is not; one thread of it takes less than waking up others for a pass in
    blocks does. Without numpy it is the blocks.
    """
    if numpy is None:
        return argmax(split(logits, fine=False), torch.arange(logits.shape[0]))
    return torch.from_numpy(numpy.argmax(logits.numpy(), axis=-1))
