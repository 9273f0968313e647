"""Dense attention that sees everything."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from family import TEXT_ONLY, Family
from mixture import mixture
from plain_reference import TransformersReference
from tiny import save_llama

VOCABULARY = 320


def write(folder: Path) -> None:
    save_llama(folder, vocab_size=VOCABULARY)


FAMILY = Family(
    name="llama",
    label="Llama, Qwen 2 and 3, Mistral: one KV cache group",
    architecture="LlamaForCausalLM",
    target="tt_hostmesh.llama.generator:LlamaForCausalLM",
    write=write,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    cells={"images": TEXT_ONLY},
)
