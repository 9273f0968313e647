"""DeepSeek V3's decoder. The cache holds the latent of each position, not its keys and values."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tt_hostmesh.layers.attention import attend
from tt_hostmesh.layers.experts import mix
from tt_hostmesh.layers.rotary import Rotary, magnitude
from tt_hostmesh.layers.step import Step
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.weights import Checkpoint


@dataclass(frozen=True, slots=True)
class Gated:
    """A feed-forward network with a gate, of an expert or of a dense layer."""

    gate: Linear
    up: Linear
    down: Linear

    def __call__(self, hidden: Tensor) -> Tensor:
        """[m, hidden] -> [m, hidden]"""
        return self.down(F.silu(self.gate(hidden)) * self.up(hidden))


@dataclass(frozen=True, slots=True)
class Router:
    """Which experts a token goes to: the best of the best groups, and with what weight.

    bias: added to choose, not to weigh
    """

    scores: Linear
    bias: Tensor
    groups: int
    best_groups: int
    picks: int
    normed: bool
    scale: float

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Experts int64 [t, k] and weights float32 [t, k] of [t, hidden]."""
        scores = self.scores(hidden).sigmoid()
        grouped = (scores + self.bias).view(len(scores), self.groups, -1)
        best = grouped.topk(2, -1).values.sum(-1).topk(self.best_groups, -1).indices
        chosen = torch.zeros(grouped.shape[:-1], dtype=torch.bool).scatter_(1, best, True)
        picked = grouped.masked_fill(~chosen[..., None], float("-inf")).flatten(1).topk(self.picks, -1).indices
        weights = scores.gather(1, picked)
        if self.normed:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return picked, weights * self.scale


@dataclass(frozen=True, slots=True)
class Mixture:
    """Routed experts, and one that sees every token."""

    router: Router
    experts: tuple[Gated, ...]
    shared: Gated

    def __call__(self, hidden: Tensor) -> Tensor:
        """[t, hidden] -> [t, hidden]"""
        picked, weights = self.router(hidden)
        return mix(hidden, picked, weights, lambda number, some: self.experts[number](some)) + self.shared(hidden)


@dataclass(frozen=True, slots=True)
class DeepseekLayer:
    """One decoder layer. query: one projection, or two around a norm; latent: hidden -> latent beside rotary key;
    unfold: latent -> keys and values of all heads."""

    input_norm: Tensor
    query: Linear
    query_norm: Tensor | None
    query_unfold: Linear | None
    latent: Linear
    latent_norm: Tensor
    unfold: Linear
    output: Linear
    post_norm: Tensor
    feed_forward: Gated | Mixture


class DeepseekV3Decoder:
    """See layers.compute.Decoder."""

    def __init__(self, config: Any, source: Checkpoint, max_seq_len: int) -> None:
        """`config`: transformers' DeepseekV3Config. Raises ValueError for what the model cannot do, KeyError for a
        tensor that the checkpoint lacks."""
        self.vocab_size: int = config.vocab_size
        self._config = config
        self._eps: float = config.rms_norm_eps
        self._scale = _scale(config.rope_parameters, config.qk_nope_head_dim + config.qk_rope_head_dim)
        self._embedding = source.read("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._head = Linear(source.read("lm_head.weight", config.vocab_size, config.hidden_size))
        self._norm = source.read("model.norm.weight", config.hidden_size)
        self._rotary = Rotary(config.rope_parameters, config.qk_rope_head_dim, max_seq_len)
        count = config.num_hidden_layers
        self._layers = tuple(_layer(config, source, f"model.layers.{i}.", i) for i in range(count))
        self.windows = (None,) * count
        self.kv_heads = (1,) * count
        self.widths = (config.kv_lora_rank + config.qk_rope_head_dim,) * count

    def hidden(self, tokens: Tensor, step: Step) -> Tensor:
        """float32 [n, q, hidden] behind the last layer; tokens int64 [n, q]."""
        hidden = F.embedding(tokens, self._embedding)
        for index, layer in enumerate(self._layers):
            hidden = hidden + self._attention(index, layer, self._normed(hidden, layer.input_norm), step)
            normed = self._normed(hidden, layer.post_norm)
            hidden = hidden + layer.feed_forward(normed.flatten(0, 1)).view_as(hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [n, vocab] of hidden states [n, hidden]."""
        return self._head(self._normed(hidden, self._norm))

    def _attention(self, index: int, layer: DeepseekLayer, normed: Tensor, step: Step) -> Tensor:
        config = self._config
        query = layer.query(normed)
        if layer.query_norm is not None and layer.query_unfold is not None:
            query = layer.query_unfold(self._normed(query, layer.query_norm))
        head, rank = config.qk_nope_head_dim, config.kv_lora_rank
        query = query.view(*query.shape[:2], config.num_attention_heads, -1)
        query = torch.cat([query[..., :head], self._turn(query[..., head:], step)], -1)

        kept = layer.latent(normed)
        turned = self._turn(kept[:, :, None, rank:], step)[:, :, 0]
        seen = step.exchange(index, torch.cat([self._normed(kept[..., :rank], layer.latent_norm), turned], -1))

        heads = layer.unfold(seen[..., :rank]).view(*seen.shape[:2], config.num_attention_heads, -1)
        plain, value = heads[..., :head], heads[..., head:]
        key = torch.cat([plain, seen[:, :, None, rank:].expand(*plain.shape[:-1], -1)], -1)
        return layer.output(attend(query, key, value, step.mask(None), self._scale))

    def _turn(self, heads: Tensor, step: Step) -> Tensor:
        """Checkpoints keep the two elements that turn together side by side."""
        if self._config.rope_interleave:
            heads = torch.cat([heads[..., ::2], heads[..., 1::2]], -1)
        return self._rotary.turn(heads, step.positions)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._eps)


def _scale(rope: Any, head_dim: int) -> float:
    """Of the attention logits: yarn makes them larger at long contexts."""
    scale = head_dim**-0.5
    if rope["rope_type"] == "yarn" and rope.get("mscale_all_dim"):
        scale *= magnitude(rope["factor"], rope["mscale_all_dim"]) ** 2
    return scale


def _layer(config: Any, source: Checkpoint, prefix: str, index: int) -> DeepseekLayer:
    hidden, attention, heads = config.hidden_size, f"{prefix}self_attn.", config.num_attention_heads
    queries = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
    kept = config.kv_lora_rank + config.qk_rope_head_dim
    unfolded = heads * (config.qk_nope_head_dim + config.v_head_dim)
    rank: int | None = config.q_lora_rank

    def linear(name: str, rows: int, columns: int, *, biased: bool = False) -> Linear:
        bias = source.read(f"{attention}{name}.bias", rows) if biased and config.attention_bias else None
        return Linear(source.read(f"{attention}{name}.weight", rows, columns), bias)

    return DeepseekLayer(
        input_norm=source.read(f"{prefix}input_layernorm.weight", hidden),
        query=linear("q_a_proj", rank, hidden, biased=True) if rank else linear("q_proj", queries, hidden),
        query_norm=source.read(f"{attention}q_a_layernorm.weight", rank) if rank else None,
        query_unfold=linear("q_b_proj", queries, rank) if rank else None,
        latent=linear("kv_a_proj_with_mqa", kept, hidden, biased=True),
        latent_norm=source.read(f"{attention}kv_a_layernorm.weight", config.kv_lora_rank),
        unfold=linear("kv_b_proj", unfolded, config.kv_lora_rank),
        output=linear("o_proj", hidden, heads * config.v_head_dim, biased=True),
        post_norm=source.read(f"{prefix}post_attention_layernorm.weight", hidden),
        feed_forward=_feed_forward(config, source, f"{prefix}mlp.", index),
    )


def _feed_forward(config: Any, source: Checkpoint, prefix: str, index: int) -> Gated | Mixture:
    hidden, inner, count = config.hidden_size, config.moe_intermediate_size, config.n_routed_experts

    def gated(name: str, size: int) -> Gated:
        gate, up = (Linear(source.read(f"{name}{kind}_proj.weight", size, hidden)) for kind in ("gate", "up"))
        return Gated(gate, up, Linear(source.read(f"{name}down_proj.weight", hidden, size)))

    if index < config.first_k_dense_replace:
        return gated(prefix, config.intermediate_size)
    router = Router(
        scores=Linear(source.read(f"{prefix}gate.weight", count, hidden)),
        bias=source.read(f"{prefix}gate.e_score_correction_bias", count),
        groups=config.n_group,
        best_groups=config.topk_group,
        picks=config.num_experts_per_tok,
        normed=config.norm_topk_prob,
        scale=config.routed_scaling_factor,
    )
    experts = tuple(gated(f"{prefix}experts.{number}.", inner) for number in range(count))
    return Mixture(router, experts, gated(f"{prefix}shared_experts.", inner * config.n_shared_experts))
