"""A Llama checkpoint in GGUF, written out as a Hugging Face directory in float32.

Weights are unpacked by the ``gguf`` package's own routines. The tokenizer is built from the file's vocabulary, merges
and pre-tokenizer name instead of by transformers, whose GGUF reader drops the digit splitting and takes ``bos`` for
``eos``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Floats = NDArray[np.float32]

OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3
"""GGUF token type of a special token."""


class GgufError(ValueError):
    """The file is not one that this conversion knows."""


def convert(gguf: Path, directory: Path) -> None:
    """Writes config, generation config, tokenizer and safetensors weights of the GGUF file into a new directory.

    Raises GgufError for another architecture, tokenizer or tensor name than those of Llama with the smollm tokenizer.
    """
    from gguf import GGUFReader

    reader = GGUFReader(gguf)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    _expect(facts, "general.architecture", "llama")
    _expect(facts, "tokenizer.ggml.pre", "smollm")
    weights = _weights(reader, facts)
    directory.mkdir(parents=True)
    _write_json(directory / "config.json", config(facts, tied="lm_head.weight" not in weights))
    _write_json(directory / "generation_config.json", special_ids(facts))
    _write_json(directory / "tokenizer_config.json", tokenizer_config(facts))
    (directory / "chat_template.jinja").write_text(facts["tokenizer.chat_template"])
    tokenizer(facts).save(str(directory / "tokenizer.json"))
    _save_weights(weights, directory / "model.safetensors")


def _expect(facts: dict[str, Any], name: str, value: str) -> None:
    if facts.get(name) != value:
        raise GgufError(f"GGUF field {name} is {facts.get(name)!r}, only {value!r} can be converted")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _save_weights(weights: dict[str, Floats], path: Path) -> None:
    from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

    save_file(weights, str(path), metadata={"format": "pt"})


def _weights(reader: Any, facts: dict[str, Any]) -> dict[str, Floats]:
    import numpy as np
    from gguf import dequantize

    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    weights: dict[str, Floats] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = unpermute(values, heads[kind])
        weights[weight_name(tensor.name)] = np.ascontiguousarray(values)
    return weights


def weight_name(gguf_name: str) -> str:
    """``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``; GgufError for a name it does not know."""
    match gguf_name.split("."):
        case ["blk", layer, kind, "weight"] if kind in INNER:
            return f"model.layers.{layer}.{INNER[kind]}.weight"
        case [kind, "weight"] if kind in OUTER:
            return f"{OUTER[kind]}.weight"
        case _:
            raise GgufError(f"tensor {gguf_name!r} has no place in a Llama checkpoint")


def unpermute(weight: Floats, heads: int) -> Floats:
    """Rows of a query or key projection, from GGUF's interleaved rotary pairs back to the two halves of Hugging Face.

    weight: float32 [heads * head_dim, hidden]; same shape out.
    """
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)


def special_ids(facts: dict[str, Any]) -> dict[str, int]:
    """Ids that end, begin and pad a text."""
    return {
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }


def config(facts: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    """``config.json``; ``tied``: the output projection is the embedding."""
    heads = facts["llama.attention.head_count"]
    theta = facts["llama.rope.freq_base"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": facts["llama.vocab_size"],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        **special_ids(facts),
    }


def tokenizer_config(facts: dict[str, Any]) -> dict[str, Any]:
    tokens = facts["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[facts["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[facts["tokenizer.ggml.unknown_token_id"]],
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
    }


def tokenizer(facts: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE with each digit on its own: what GGUF names ``smollm``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    built: Any = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    built.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    built.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return built
