"""The sizes of one BERT checkpoint, read from its Hugging Face configuration."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BertConfig:
    """What the forward pass needs to know. Sizes in elements."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_positions: int
    type_vocab_size: int
    layer_norm_eps: float

    @staticmethod
    def of(hf_config: Any) -> "BertConfig":
        """Raises ValueError for what is not served."""
        if hf_config.hidden_act != "gelu":
            raise ValueError(f"hidden_act={hf_config.hidden_act!r} is not supported: allowed is gelu")
        return BertConfig(
            vocab_size=hf_config.vocab_size,
            hidden_size=hf_config.hidden_size,
            intermediate_size=hf_config.intermediate_size,
            num_layers=hf_config.num_hidden_layers,
            num_heads=hf_config.num_attention_heads,
            max_positions=hf_config.max_position_embeddings,
            type_vocab_size=hf_config.type_vocab_size,
            layer_norm_eps=hf_config.layer_norm_eps,
        )
