"""The sizes of one Llama checkpoint, read from its Hugging Face configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ACTIVATIONS = ("silu", "swish", "gelu", "gelu_pytorch_tanh", "relu")


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """What the forward pass needs to know. Sizes in elements. attention_bias: of query, key and value; output_bias: of
    what follows the attention."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    activation: str
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool
    rope: Mapping[str, Any]

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @staticmethod
    def of(hf_config: Any) -> "LlamaConfig":
        """From a transformers configuration (release 4 or 5). Raises ValueError for what the model cannot do."""
        heads: int = hf_config.num_attention_heads
        activation: str = getattr(hf_config, "hidden_act", "silu")
        if activation not in ACTIVATIONS:
            raise ValueError(f"hidden_act={activation!r} is not supported: allowed are {', '.join(ACTIVATIONS)}")
        head_dim = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // heads
        return LlamaConfig(
            vocab_size=hf_config.vocab_size,
            hidden_size=hf_config.hidden_size,
            intermediate_size=hf_config.intermediate_size,
            num_layers=hf_config.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=getattr(hf_config, "num_key_value_heads", None) or heads,
            head_dim=head_dim,
            rms_norm_eps=hf_config.rms_norm_eps,
            activation=activation,
            attention_bias=bool(getattr(hf_config, "attention_bias", False)),
            output_bias=bool(getattr(hf_config, "attention_bias", False)),
            mlp_bias=bool(getattr(hf_config, "mlp_bias", False)),
            tie_word_embeddings=bool(getattr(hf_config, "tie_word_embeddings", False)),
            rope=_rope(hf_config),
        )


def _rope(hf_config: Any) -> dict[str, Any]:
    """Rope parameters with the keys rope_type, rope_theta and those of the type.

    transformers 5 keeps all in `rope_parameters`; before, `rope_theta` and `rope_scaling` (with `type` or `rope_type`).
    """
    given: Any = getattr(hf_config, "rope_parameters", None) or getattr(hf_config, "rope_scaling", None)
    rope: dict[str, Any] = dict(given) if given else {}
    rope.setdefault("rope_type", rope.pop("type", "default"))
    rope.setdefault("rope_theta", getattr(hf_config, "rope_theta", None) or 10000.0)
    return rope
