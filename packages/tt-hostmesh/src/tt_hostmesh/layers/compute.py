"""A `Compute` over a decoder whose layers keep what they want of each position, each with its own page table."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import KVLayout, PrefillRow
from tt_hostmesh.layers.cache import LayeredCache
from tt_hostmesh.layers.step import Step


class Decoder(Protocol):
    """The arithmetic of one model, float32.

    windows:  for each layer, positions that it looks back at, its own included; None: all
    kv_heads: for each layer, heads of what it keeps
    widths:   for each layer, floats that it keeps of a position
    """

    vocab_size: int
    windows: tuple[int | None, ...]
    kv_heads: tuple[int, ...]
    widths: tuple[int, ...]

    def hidden(self, tokens: Tensor, step: Step) -> Tensor:
        """float32 [n, q, hidden] behind the last layer; tokens int64 [n, q]."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [n, vocab] of hidden states [n, hidden]."""
        ...


class LayeredCompute:
    """See adapter.compute.Compute; page tables are int64 [layers, ...] in every call.

    top_logprobs:  candidates whose logprobs the device's sampler answers; 0: the sampled token's only
    all_positions: a prefill answers the logits of all its positions
    """

    def __init__(self, decoder: Decoder, *, top_logprobs: int = 0, all_positions: bool = False) -> None:
        self.top_logprobs = top_logprobs
        self._all_positions = all_positions
        self.vocab_size = decoder.vocab_size
        self.num_kv_heads = decoder.kv_heads[0]
        self.kv_heads = decoder.kv_heads
        self.windows = decoder.windows
        self._decoder = decoder
        self._cache: LayeredCache | None = None

    def allocate(self, layout: KVLayout, num_layers: int) -> LayeredCache:
        return self.allocate_layers(layout, range(num_layers))

    def allocate_layers(self, layout: KVLayout, buffers: Sequence[int]) -> LayeredCache:
        """The cache of all lanes; buffers: for each layer the buffer that it lies in."""
        if len(buffers) != len(self.windows):
            raise ValueError(f"{len(buffers)} layers of cache for a model of {len(self.windows)}")
        self._cache = LayeredCache(layout, buffers, self._decoder.widths)
        return self._cache

    @torch.no_grad()
    def prefill(self, rows: Sequence[PrefillRow]) -> Tensor:
        """Logits of each row's last position, or of all. Rows see what earlier rows of the call wrote."""
        hidden = [self._prefill_row(row)[0] for row in rows]
        if not self._all_positions:
            return self._decoder.logits(torch.stack([one[-1] for one in hidden]))
        longest = max(len(one) for one in hidden)
        filled = [torch.cat([one, one[-1:].expand(longest - len(one), -1)]) for one in hidden]
        return self._decoder.logits(torch.stack(filled))

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor) -> Tensor:
        """Logits of one step; tokens and positions int64 [n], blocks int64 [layers, n, w]."""
        step = Step(self._require_cache(), positions[:, None], blocks)
        return self._decoder.logits(self._decoder.hidden(tokens[:, None], step)[:, 0])

    def _prefill_row(self, row: PrefillRow) -> Tensor:
        positions = torch.arange(row.start, len(row.tokens))[None]
        step = Step(self._require_cache(), positions, row.blocks[:, None])
        return self._decoder.hidden(row.tokens[None, row.start :], step)

    def _require_cache(self) -> LayeredCache:
        if self._cache is None:
            raise RuntimeError("the KV cache was not allocated before the first forward pass")
        return self._cache
