"""The forward pass: keys and values in pages, recurrent state in slots."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.adapter.compute import KVLayout, PrefillRow
from tt_hostmesh.llama.kv import PagedCache
from tt_hostmesh.qwen3_5.attention import angles, attend, weigh
from tt_hostmesh.qwen3_5.config import Qwen35Config
from tt_hostmesh.qwen3_5.delta import mix
from tt_hostmesh.qwen3_5.states import StateSlots
from tt_hostmesh.qwen3_5.weights import AttentionWeights, DeltaWeights, Qwen35Weights

Mix = Callable[[int, AttentionWeights | DeltaWeights, Tensor], Tensor]
"""(index among the layers of its kind, weights, normed input [t, hidden]) -> [t, hidden]"""


class Qwen35Compute:
    """Qwen 3.5 in float32, rows of a prefill one by one (see adapter.compute.StatefulCompute for the calls)."""

    def __init__(self, config: Qwen35Config, weights: Qwen35Weights, max_seq_len: int, slots: int) -> None:
        self.config = config
        self.vocab_size = config.vocab_size
        self.num_kv_heads = config.num_kv_heads
        self._weights = weights
        self._angles = angles(config, max_seq_len)
        self._states = StateSlots(config, slots)
        self._cache: PagedCache | None = None

    def allocate(self, layout: KVLayout, num_layers: int) -> PagedCache:
        """Raises ValueError unless there is a cache for each attention layer, and for no other."""
        if num_layers != self.config.attention_layers:
            raise ValueError(
                f"a KV cache of {num_layers} layers: the model has {self.config.attention_layers} attention layers, "
                "and recurrent ones have none (tt-metal contract 1.3)"
            )
        self._cache = PagedCache(layout, num_layers, self.config.num_kv_heads, self.config.head_dim)
        return self._cache

    def permute_state(self, remap: Tensor) -> None:
        self._states.permute(remap)

    @torch.no_grad()
    def prefill(self, rows: Sequence[PrefillRow]) -> Tensor:
        """Logits of each row's last position, float32 [n, vocab]."""
        return torch.cat([self._prefill_row(row) for row in rows])

    @torch.no_grad()
    def decode(self, tokens: Tensor, positions: Tensor, blocks: Tensor, slots: Tensor | None = None) -> Tensor:
        """Logits of one step, float32 [n, vocab]; tokens, positions, slots int64 [n]; blocks int64 [n, w].

        Without slots, row i is slot i.
        """
        cache, config = self._require_cache(), self.config
        slots = torch.arange(len(tokens)) if slots is None else slots
        size = cache.layout.block_size
        blocks = blocks[:, : int(positions.max()) // size + 1]
        places = cache.slots(blocks.gather(1, (positions // size)[:, None])[:, 0], positions)
        mask = (torch.arange(blocks.shape[1] * size) <= positions[:, None])[:, None, None]
        turn = self._angles[positions]

        def step(index: int, weights: AttentionWeights | DeltaWeights, x: Tensor) -> Tensor:
            if isinstance(weights, DeltaWeights):
                conv, memory = self._states.conv[index, slots], self._states.memory[index, slots]
                out = mix(config, weights, x[:, None], conv, memory)
                self._states.conv[index, slots], self._states.memory[index, slots] = conv, memory
                return out[:, 0]

            def look(query: Tensor, key_value: Tensor) -> Tensor:
                cache.write(index, places, key_value)
                return weigh(config, query[:, None], *cache.gather(index, blocks), mask)[:, 0]

            return attend(config, weights, x, turn, look)

        return self._logits(self._layers(tokens, step))

    def _prefill_row(self, row: PrefillRow) -> Tensor:
        """Positions [start, end) of one row, on top of the state in its slot unless it starts at 0."""
        cache, config = self._require_cache(), self.config
        end = len(row.tokens)
        if row.start == 0:
            self._states.begin(row.slot)
        size = cache.layout.block_size
        positions = torch.arange(row.start, end)
        blocks = row.blocks[: -(-end // size)]
        places = cache.slots(blocks[positions // size], positions)
        mask = torch.arange(len(blocks) * size) <= positions[:, None]

        def span(index: int, weights: AttentionWeights | DeltaWeights, x: Tensor) -> Tensor:
            if isinstance(weights, DeltaWeights):
                one = slice(row.slot, row.slot + 1)
                return mix(config, weights, x[None], self._states.conv[index, one], self._states.memory[index, one])[0]

            def look(query: Tensor, key_value: Tensor) -> Tensor:
                cache.write(index, places, key_value)
                return weigh(config, query[None], *cache.gather(index, blocks[None]), mask[None, None])[0]

            return attend(config, weights, x, self._angles[positions], look)

        return self._logits(self._layers(row.tokens[row.start :], span)[-1:])

    def _layers(self, tokens: Tensor, mixer: Mix) -> Tensor:
        hidden = F.embedding(tokens, self._weights.embedding)
        seen = {AttentionWeights: 0, DeltaWeights: 0}
        for layer in self._weights.layers:
            kind = type(layer.mixer)
            hidden = hidden + mixer(seen[kind], layer.mixer, self._norm(hidden, layer.input_norm))
            seen[kind] += 1
            gate, up = layer.gate_up(self._norm(hidden, layer.post_norm)).chunk(2, -1)
            hidden = hidden + layer.down(F.silu(gate) * up)
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._weights.head(self._norm(hidden, self._weights.norm))

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, (self.config.hidden_size,), weight, self.config.rms_norm_eps)

    def _require_cache(self) -> PagedCache:
        if self._cache is None:
            raise RuntimeError("allocate_kv_cache was not called before the first forward pass")
        return self._cache
