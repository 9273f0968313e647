"""A checkpoint directory for the synthetic model: a configuration and a tokenizer, no weights.

``python -m tt_hostmesh.synthetic.checkpoint DIRECTORY --decode-ms 10 --prefill-ms-per-token 0.25``
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tt_hostmesh.synthetic.cost import CONFIG_KEY, DeviceCost

ARCHITECTURE = "TTSyntheticForCausalLM"
"""The prefixed name: vLLM has no model of the bare one, which is all that it could be mistaken for."""


def configuration(vocab_size: int, max_len: int, cost: DeviceCost) -> dict[str, Any]:
    """config.json: a small Llama to whoever asks for sizes. No token ends a text."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 8,
        "max_position_embeddings": max_len,
        "rms_norm_eps": 1e-5,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "float32",
        CONFIG_KEY: asdict(cost),
    }


def tokenizer(vocab_size: int) -> dict[str, Any]:
    """tokenizer.json: one word a token, `w0` and up."""
    words = {f"w{token}": token for token in range(vocab_size)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }


def write_checkpoint(
    directory: Path, *, vocab_size: int = 49_152, max_len: int = 4096, cost: DeviceCost | None = None
) -> Path:
    """Write the directory, over what is there. vocab_size: at least 32 tokens. Returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": configuration(vocab_size, max_len, cost or DeviceCost()),
        "tokenizer.json": tokenizer(vocab_size),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_len},
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document), encoding="utf-8")
    return directory


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Prints the directory."""
    parser = argparse.ArgumentParser(prog="tt_hostmesh.synthetic.checkpoint", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--vocab-size", type=int, default=49_152)
    parser.add_argument("--max-len", type=int, default=4096)
    for field in fields(DeviceCost):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=field.default)
    options = vars(parser.parse_args(arguments))
    cost = DeviceCost(**{field.name: options.pop(field.name) for field in fields(DeviceCost)})
    print(write_checkpoint(options.pop("directory"), cost=cost, **options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
