"""The sizes of one Qwen 3.5 checkpoint, read from its Hugging Face configuration."""

from dataclasses import dataclass
from typing import Any

LINEAR = "linear_attention"
FULL = "full_attention"


@dataclass(frozen=True, slots=True)
class Qwen35Config:
    """What the forward pass needs to know. Sizes in elements; `layer_types`: linear_attention or full_attention."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    kernel: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int

    @property
    def conv_size(self) -> int:
        """Channels of a linear layer's convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_size

    @property
    def value_size(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def attention_layers(self) -> int:
        return self.layer_types.count(FULL)

    @property
    def linear_layers(self) -> int:
        return self.layer_types.count(LINEAR)

    @staticmethod
    def of(hf_config: Any) -> "Qwen35Config":
        """From a transformers configuration, of the text model or of the whole. ValueError for what is not served."""
        text: Any = getattr(hf_config, "text_config", None) or hf_config
        if text.hidden_act != "silu" or text.attention_bias:
            raise ValueError(
                f"hidden_act={text.hidden_act!r}, attention_bias={text.attention_bias}: allowed are 'silu' and False"
            )
        types = tuple(text.layer_types)
        unknown = sorted(set(types) - {LINEAR, FULL})
        if unknown:
            raise ValueError(f"layer_types has {', '.join(unknown)}: allowed are {LINEAR} and {FULL}")
        rope: Any = text.rope_parameters
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"rope_type={rope['rope_type']!r} is not supported: allowed is default")
        return Qwen35Config(
            vocab_size=text.vocab_size,
            hidden_size=text.hidden_size,
            intermediate_size=text.intermediate_size,
            layer_types=types,
            num_heads=text.num_attention_heads,
            num_kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            rotary_dim=int(text.head_dim * rope.get("partial_rotary_factor", 1.0)),
            rope_theta=rope["rope_theta"],
            rms_norm_eps=text.rms_norm_eps,
            tie_word_embeddings=bool(hf_config.tie_word_embeddings),
            kernel=text.linear_conv_kernel_dim,
            key_heads=text.linear_num_key_heads,
            key_dim=text.linear_key_head_dim,
            value_heads=text.linear_num_value_heads,
            value_dim=text.linear_value_head_dim,
        )
