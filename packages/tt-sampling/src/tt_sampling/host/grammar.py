"""Grammar bitmasks, applied on packed words to structured rows only."""

import torch
from torch import Tensor

_BITS_OF_A_BYTE = ((torch.arange(256).unsqueeze(1) >> torch.arange(8)) & 1).bool()
_ADDEND_OF_A_BYTE = torch.zeros(256, 8).masked_fill_(~_BITS_OF_A_BYTE, float("-inf"))
"""[256, 8] float32: what one byte of a mask adds to its eight tokens, 0 where the bit allows, -inf elsewhere."""


def apply_bitmask(logits: Tensor, positions: Tensor, words: Tensor) -> None:
    """Forbid, in place, what the masks forbid.

    logits:    float32 [n, V]
    positions: int64 [k], the row of `logits` of each mask, no row twice
    words:     int32 [k, ceil(V / 32)], bit t % 32 of word t // 32 is 1 when token t is allowed
    """
    vocab = logits.shape[1]
    masked = words.contiguous().view(torch.uint8).flatten().int()
    addend = _ADDEND_OF_A_BYTE.index_select(0, masked).view(words.shape[0], -1)
    width = min(vocab, addend.shape[1])
    logits[:, :width].index_add_(0, positions, addend[:, :width])
