"""The synthetic model as the adapter sees it."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tt_hostmesh.adapter.compute import KVLayout, PrefillRow
from tt_hostmesh.peaks import Peaks
from tt_hostmesh.synthetic.cache import DigestCache
from tt_hostmesh.synthetic.cost import DeviceCost
from tt_hostmesh.synthetic.digest import CANDIDATES, Digests, next_tokens

FLOOR = -100.0
_VALUES = torch.arange(10.0, 10.0 - 0.5 * CANDIDATES, -0.5)


class SyntheticCompute:
    """Thirty-two candidates a context: the token of `digest.next_tokens` with the largest logit, and those after it.

    `occupy` is told the seconds that each call takes on the device (see adapter.compute.Compute for the calls).
    """

    def __init__(self, vocab_size: int, num_kv_heads: int, cost: DeviceCost, occupy: Callable[[float], None]) -> None:
        if vocab_size < CANDIDATES:
            raise ValueError(f"vocab_size={vocab_size} is too small: the synthetic model needs {CANDIDATES} tokens")
        self.vocab_size = vocab_size
        self.num_kv_heads = num_kv_heads
        self.cost = cost
        self._occupy = occupy
        self._cache: DigestCache | None = None

    def allocate(self, layout: KVLayout, num_layers: int) -> DigestCache:
        self._cache = DigestCache(layout)
        return self._cache

    def prefill(self, rows: Sequence[PrefillRow]) -> Peaks:
        """Logits of each row's last position. Rows see what earlier rows of the call wrote."""
        cache = self._require_cache()
        ends = [cache.extend(row.tokens.numpy(), row.start, row.blocks.numpy()) for row in rows]
        self._occupy(self.cost.prefill_seconds(sum(len(row.tokens) - row.start for row in rows)))
        return self._peaks(np.array(ends))

    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor) -> Peaks:
        """Logits of one step; tokens, positions int64 [n]; blocks int64 [n, w], pool-wide ids."""
        digests = self._require_cache().append(tokens.numpy(), positions.numpy(), blocks.numpy())
        self._occupy(self.cost.decode_seconds(len(digests), int(positions.sum())))
        return self._peaks(digests)

    def _peaks(self, digests: Digests) -> Peaks:
        first = torch.from_numpy(next_tokens(digests, self.vocab_size))
        ids = (first[:, None] + torch.arange(CANDIDATES)) % self.vocab_size
        return Peaks(ids, _VALUES.expand(len(ids), -1), FLOOR, self.vocab_size)

    def _require_cache(self) -> DigestCache:
        if self._cache is None:
            raise RuntimeError("allocate_kv_cache was not called before the first forward pass")
        return self._cache
