"""What a layer keeps of each position, and for how long."""

from typing import Any, NamedTuple

SLIDING = "sliding_attention"


class Kept(NamedTuple):
    """window: positions whose blocks are kept, with the current one; None: all"""

    heads: int
    head_size: int
    window: int | None = None


def kept_by_layer(config: Any) -> list[Kept]:
    """Of a transformers text configuration whose layers differ in their windows."""
    heads, head_size = config.num_key_value_heads, config.head_dim
    windows = [config.sliding_window if kind == SLIDING else None for kind in config.layer_types]
    return [Kept(heads, head_size, window) for window in windows]
