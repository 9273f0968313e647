"""A random Llama small enough to be answered by transformers in milliseconds, and bundles that serve it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def save_llama(folder: Path, *, vocab_size: int, layers: int = 3, positions: int = 512, seed: int = 7) -> Path:
    """Grouped heads, and weights large enough that no two logits are close."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=vocab_size,
        max_position_embeddings=positions,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def write_tiny_llama(folder: Path, tokenizer_from: Path) -> Path:
    """One that speaks the demo model's tokens."""
    vocab_size = json.loads((tokenizer_from / "config.json").read_text())["vocab_size"]
    save_llama(folder, vocab_size=vocab_size, positions=1024)
    for name in TOKENIZER:
        if (tokenizer_from / name).exists():
            shutil.copy(tokenizer_from / name, folder / name)
    return folder


def write_bundle(folder: Path, module: str, source: str, **metadata: str) -> dict[str, str]:
    """A model bundle that serves Llama with the class `Model` of `source`. Returns the variable that makes it known."""
    path = folder / module
    path.mkdir(parents=True)
    said = {"arch": "LlamaForCausalLM", "main_class": f"{module}:Model", **metadata}
    (path / "vllm_metadata.json").write_text(json.dumps(said))
    (path / f"{module}.py").write_text(source)
    return {"EXTRA_MODELS_DIR": str(folder)}
