"""Telling a model's answer: tokens or logits."""

from collections.abc import Sequence


def holds_logits(shape: Sequence[int], vocab_size: int) -> bool:
    """True when a result of this shape holds logits: its last dimension is the vocabulary (or padded beyond it).

    Some models return logits although tokens were asked for; their step is then sampled on the host.
    Tokens come as [n], [n, 1], [n, 1, 1] or [n, W]. Source: tt-metal contract 1.5.
    """
    return len(shape) >= 2 and shape[-1] >= vocab_size
