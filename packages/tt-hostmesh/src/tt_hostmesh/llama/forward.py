"""The forward pass: packed prefill and batched decode over the paged cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.adapter.compute import KVLayout, PrefillRow
from tt_hostmesh.llama.config import LlamaConfig
from tt_hostmesh.llama.kv import PagedCache
from tt_hostmesh.llama.rope import rotate, rotations
from tt_hostmesh.llama.weights import LayerWeights, LlamaWeights

Attend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, query [t, q_size], key beside value [t, 2 * kv_size]) -> [t, q_size]"""

PACK_TOKENS = 2048
"""Most tokens of one packed prefill; bounds the memory of the intermediate tensors."""


class RowInputs(NamedTuple):
    """What the layers get of t tokens: hidden [t, hidden]; rotation [t, head_dim / 2]; added: behind each of the first
    layers, [t, hidden] to add to what it gives."""

    hidden: Tensor
    rotation: Tensor
    added: Sequence[Tensor] = ()


@dataclass(frozen=True, slots=True)
class _Span:
    """One row inside a packed prefill: its tokens are [begin, end) of the pack, its positions [start, start + size)."""

    begin: int
    end: int
    start: int
    blocks: Tensor
    mask: Tensor | None

    @property
    def context(self) -> int:
        return self.start + self.end - self.begin


class LlamaCompute:
    """Llama in float32 (see adapter.compute.Compute for the calls)."""

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, max_seq_len: int) -> None:
        self.config = config
        self.vocab_size = config.vocab_size
        self.num_kv_heads = config.num_kv_heads
        self._weights = weights
        self._rotations = rotations(config.rope, config.head_dim, max_seq_len)
        self._cache: PagedCache | None = None

    def allocate(self, layout: KVLayout, num_layers: int) -> PagedCache:
        self._cache = PagedCache(layout, num_layers, self.config.num_kv_heads, self.config.head_dim)
        return self._cache

    @torch.no_grad()
    def prefill(self, rows: Sequence[PrefillRow]) -> Tensor:
        """Logits of each row's last position, float32 [n, vocab]. Rows see what earlier rows of the call wrote."""
        return torch.cat([self._prefill_pack(pack) for pack in _packs(rows)])

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor) -> Tensor:
        """Logits of one step, float32 [n, vocab]; tokens, positions int64 [n]; blocks int64 [n, w], pool-wide ids."""
        return self._step(self._embed(tokens), self._rotations[positions], positions, blocks)

    def _step(self, hidden: Tensor, rotation: Tensor, positions: Tensor, blocks: Tensor) -> Tensor:
        cache = self._require_cache()
        size = cache.layout.block_size
        context = min(-(-(int(positions.max()) + 1) // size), blocks.shape[1])
        blocks = blocks[:, :context]
        slots = cache.slots(blocks.gather(1, (positions // size)[:, None])[:, 0], positions)
        seen = torch.arange(context * size) <= positions[:, None]
        mask = torch.where(seen, 0.0, float("-inf"))[:, None, None]
        group = self.config.num_heads // self.config.num_kv_heads

        def attend(layer: int, query: Tensor, key_value: Tensor) -> Tensor:
            cache.write(layer, slots, key_value)
            key, value = cache.gather(layer, blocks)
            # heads that share a key head become the query length: no key is copied for them
            grouped = query.view(len(hidden), self.config.num_kv_heads, group, self.config.head_dim)
            return F.scaled_dot_product_attention(grouped, key, value, attn_mask=mask).reshape(len(hidden), -1)

        return self._logits(self._layers(hidden, rotation, attend))

    def _prefill_pack(self, rows: Sequence[PrefillRow]) -> Tensor:
        cache = self._require_cache()
        spans = _spans(rows, cache.layout.block_size)
        inputs = [self._row_inputs(row) for row in rows]
        hidden = torch.cat([one.hidden for one in inputs])
        rotation = torch.cat([one.rotation for one in inputs])
        added = [torch.cat(parts) for parts in zip(*(one.added for one in inputs), strict=True)]
        slots = torch.cat([_row_slots(row, cache) for row in rows])

        def attend(layer: int, query: Tensor, key_value: Tensor) -> Tensor:
            cache.write(layer, slots, key_value)
            return torch.cat([self._attend_span(layer, span, query, key_value) for span in spans])

        hidden = self._layers(hidden, rotation, attend, added)
        return self._logits(hidden[torch.tensor([span.end - 1 for span in spans])])

    def _attend_span(self, layer: int, span: _Span, query: Tensor, key_value: Tensor) -> Tensor:
        config = self.config
        mine = query[span.begin : span.end].view(1, -1, config.num_heads, config.head_dim).transpose(1, 2)
        if span.start == 0:
            own = key_value[span.begin : span.end].view(1, -1, 2, config.num_kv_heads, config.head_dim)
            key, value = own[:, :, 0].transpose(1, 2), own[:, :, 1].transpose(1, 2)
        else:
            key, value = (part[:, :, : span.context] for part in self._require_cache().gather(layer, span.blocks))
        group = config.num_heads // config.num_kv_heads
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(mine, key, value, attn_mask=span.mask, is_causal=span.mask is None)
        return out.transpose(1, 2).reshape(span.end - span.begin, -1)

    def _row_inputs(self, row: PrefillRow) -> RowInputs:
        """Of the row's positions from `start` on."""
        return RowInputs(self._embed(row.tokens[row.start :]), self._rotations[row.start : len(row.tokens)])

    def _embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self._weights.embedding)

    def _layers(self, hidden: Tensor, rotation: Tensor, attend: Attend, added: Sequence[Tensor] = ()) -> Tensor:
        for index, layer in enumerate(self._weights.layers):
            hidden = self._layer(index, layer, hidden, rotation, attend)
            if index < len(added):
                hidden = hidden + added[index]
        return hidden

    def _layer(self, index: int, layer: LayerWeights, hidden: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        config = self.config
        normed = F.rms_norm(hidden, (config.hidden_size,), layer.input_norm, config.rms_norm_eps)
        qkv = layer.qkv(normed)
        turning = qkv[:, : config.q_size + config.kv_size]
        heads = turning.view(len(qkv), -1, config.head_dim)
        self._norm_heads(index, heads)
        rotate(heads, rotation)
        mixed = attend(index, qkv[:, : config.q_size], qkv[:, config.q_size :])
        hidden = hidden + layer.output(mixed)
        normed = F.rms_norm(hidden, (config.hidden_size,), layer.post_norm, config.rms_norm_eps)
        gate, up = layer.gate_up(normed).chunk(2, -1)
        return hidden + layer.down(_activate(config.activation, gate) * up)

    def _norm_heads(self, layer: int, heads: Tensor) -> None:
        """What happens to query and key heads, [t, heads + kv heads, head_dim], in place before they turn: nothing."""

    def _logits(self, hidden: Tensor) -> Tensor:
        normed = F.rms_norm(hidden, (self.config.hidden_size,), self._weights.norm, self.config.rms_norm_eps)
        return self._weights.head(normed)

    def _require_cache(self) -> PagedCache:
        if self._cache is None:
            raise RuntimeError("allocate_kv_cache was not called before the first forward pass")
        return self._cache


def _packs(rows: Sequence[PrefillRow]) -> list[list[PrefillRow]]:
    packs: list[list[PrefillRow]] = [[]]
    total = 0
    for row in rows:
        size = len(row.tokens) - row.start
        if packs[-1] and total + size > PACK_TOKENS:
            packs.append([])
            total = 0
        packs[-1].append(row)
        total += size
    return packs


def _spans(rows: Sequence[PrefillRow], block_size: int) -> list[_Span]:
    spans: list[_Span] = []
    begin = 0
    for row in rows:
        length = len(row.tokens)
        end = begin + length - row.start
        mask = None
        if row.start:
            mask = torch.ones(length - row.start, length, dtype=torch.bool).tril(row.start)
        spans.append(_Span(begin, end, row.start, row.blocks[None, : -(-length // block_size)], mask))
        begin = end
    return spans


def _row_slots(row: PrefillRow, cache: PagedCache) -> Tensor:
    positions = torch.arange(row.start, len(row.tokens))
    return cache.slots(row.blocks[positions // cache.layout.block_size], positions)


def _activate(name: str, gate: Tensor) -> Tensor:
    if name in ("silu", "swish"):
        return F.silu(gate)
    if name == "relu":
        return F.relu(gate)
    return F.gelu(gate, approximate="tanh" if name == "gelu_pytorch_tanh" else "none")
