"""What a model has to bring; everything else of the contract is the adapter's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from tt_hostmesh.adapter.images import Image
from tt_hostmesh.peaks import Peaks

Logits = Tensor | Peaks
"""Logits of n rows: float32 [n, vocab], or the same in the short form."""


class KVLayout(NamedTuple):
    """How the caches of all lanes lie in one pool. Lane l owns `num_blocks` blocks from l * num_blocks on."""

    lanes: int
    num_blocks: int
    block_size: int


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row of a prefill. tokens: int64 [end]; compute positions [start, end); blocks: int64 [w], pool-wide ids;
    slot: where a model with state keeps the sequence's; images: of a model that sees, all that lie in `tokens`."""

    tokens: Tensor
    start: int
    blocks: Tensor
    slot: int = 0
    images: tuple[Image, ...] = ()


class Compute(Protocol):
    """The arithmetic of one model. Called in the device thread only, in the order of submission.

    A model whose sampler answers the best candidates' logprobs has `top_logprobs`, their number.
    """

    vocab_size: int
    num_kv_heads: int

    def allocate(self, layout: KVLayout, num_layers: int) -> object:
        """Make the cache of all lanes. Returns a handle for the caller."""
        ...

    def prefill(self, rows: Sequence[PrefillRow]) -> Logits:
        """Logits of each row's last position; or of all, [n, s, vocab], the last one repeated behind a row's end."""
        ...

    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor) -> Logits:
        """Logits of one step; tokens and positions int64 [n], blocks int64 [n, w]."""
        ...


@runtime_checkable
class PerLayerCompute(Protocol):
    """A `Compute` whose layers have page tables of their own: every `blocks` of it has a dimension [layers] in front.

    windows:  for each layer, positions that it looks back at, its own included; None: all
    kv_heads: for each layer, heads of what it keeps
    """

    windows: tuple[int | None, ...]
    kv_heads: tuple[int, ...]

    def allocate_layers(self, layout: KVLayout, buffers: Sequence[int]) -> object:
        """Make the cache of all lanes; layers with the same number lie in one buffer. Returns a handle."""
        ...


@runtime_checkable
class StatefulCompute(Protocol):
    """A `Compute` whose sequences have state outside the paged cache, by slot. Its `decode` takes `slots`, int64 [n].

    A prefill that starts at 0 begins the state of its row's slot anew; any other goes on from what is there.
    """

    def permute_state(self, remap: Tensor) -> None:
        """Slot i takes the state now in slot remap[i]; int64 [B]."""
        ...
