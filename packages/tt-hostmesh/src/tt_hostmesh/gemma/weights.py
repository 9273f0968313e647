"""Gemma checkpoints of releases 3 and 4, read from safetensors files."""

from typing import Any

import torch
from torch import Tensor

from tt_hostmesh.gemma.decoder import GemmaLayer, GemmaWeights
from tt_hostmesh.layers.kept import SLIDING
from tt_hostmesh.layers.rotary import Rotary
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.weights import Checkpoint

COMMON = {"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}
ALLOWED = {
    3: {**COMMON, "attn_logit_softcapping": None, "use_bidirectional_attention": False},
    4: {
        **COMMON,
        "use_bidirectional_attention": None,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "enable_moe_block": False,
    },
}
"""Settings of a release that the decoder knows in one value only."""


class GemmaCheckpoint:
    """Reads one checkpoint. Norms of release 3 are kept less one."""

    def __init__(self, release: int, config: Any, source: Checkpoint, max_seq_len: int) -> None:
        """`config`: transformers' text configuration. Raises ValueError for what the decoder cannot do."""
        for name, value in ALLOWED[release].items():
            found = getattr(config, name, value)
            if found != value:
                raise ValueError(f"{name}={found!r} is not supported: only {value!r}")
        self._release, self._config, self._source, self._length = release, config, source, max_seq_len
        wrapped = "language_model.model.norm.weight" in source
        self._prefix = "language_model.model." if wrapped else "model."

    def weights(self) -> GemmaWeights:
        """All weights in float32. Raises KeyError for a tensor that is missing, ValueError for a wrong shape."""
        config = self._config
        return GemmaWeights(
            embedding=self._read("embed_tokens.weight", config.vocab_size, config.hidden_size),
            layers=tuple(self._layer(index, kind) for index, kind in enumerate(config.layer_types)),
            norm=self._norm("norm", config.hidden_size),
            eps=config.rms_norm_eps,
            cap=config.final_logit_softcapping,
        )

    def _layer(self, index: int, kind: str) -> GemmaLayer:
        config, name = self._config, f"layers.{index}."
        hidden, inner = config.hidden_size, config.intermediate_size
        own = config.per_layer_config[index] if self._release == 4 else config
        head_dim, kv_heads = own.head_dim, own.num_key_value_heads
        queries, keys = config.num_attention_heads * head_dim, kv_heads * head_dim
        key_is_value = self._release == 4 and config.attention_k_eq_v and kind != SLIDING
        return GemmaLayer(
            window=config.sliding_window if kind == SLIDING else None,
            head_dim=head_dim,
            kv_heads=kv_heads,
            rotary=Rotary(config.rope_parameters[kind], head_dim, self._length),
            norms=(
                self._norm(f"{name}input_layernorm", hidden),
                self._norm(f"{name}post_attention_layernorm", hidden),
                self._norm(f"{name}pre_feedforward_layernorm", hidden),
                self._norm(f"{name}post_feedforward_layernorm", hidden),
            ),
            query=self._linear(f"{name}self_attn.q_proj", queries, hidden),
            key=self._linear(f"{name}self_attn.k_proj", keys, hidden),
            value=None if key_is_value else self._linear(f"{name}self_attn.v_proj", keys, hidden),
            output=self._linear(f"{name}self_attn.o_proj", hidden, queries),
            query_norm=self._norm(f"{name}self_attn.q_norm", head_dim),
            key_norm=self._norm(f"{name}self_attn.k_norm", head_dim),
            value_norm=torch.ones(head_dim) if self._release == 4 else None,
            scale=1.0 if self._release == 4 else config.query_pre_attn_scalar**-0.5,
            gate=self._linear(f"{name}mlp.gate_proj", inner, hidden),
            up=self._linear(f"{name}mlp.up_proj", inner, hidden),
            down=self._linear(f"{name}mlp.down_proj", hidden, inner),
            scalar=float(self._read(f"{name}layer_scalar", 1)) if self._release == 4 else 1.0,
        )

    def _read(self, name: str, *shape: int) -> Tensor:
        return self._source.read(self._prefix + name, *shape)

    def _linear(self, name: str, rows: int, columns: int) -> Linear:
        return Linear(self._read(f"{name}.weight", rows, columns))

    def _norm(self, name: str, size: int) -> Tensor:
        weight = self._read(f"{name}.weight", size)
        return 1 + weight if self._release == 3 else weight
