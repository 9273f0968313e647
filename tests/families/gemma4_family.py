"""Layers whose heads differ in number and size: a cache of its own for each, one page table."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tt-hostmesh" / "tests"))

from family import TEXT_ONLY, Family, turned_off
from layered_checkpoints import VOCABULARY, write_gemma4
from mixture import mixture
from plain_reference import TransformersReference


def unserved() -> str:
    """Older releases ask the configuration for the head size, which differs by layer and is not told."""
    import vllm.engine.arg_utils  # noqa: F401 - vLLM's modules import each other, and this order works
    from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase

    if hasattr(ModelArchConfigConvertorBase, "get_per_layer_hf_configs"):
        return ""
    return "this vLLM cannot read a configuration whose layers differ in heads"


FAMILY = Family(
    name="gemma4",
    label="Gemma 4 with its KV cache groups off: layers of different heads share a page table",
    architecture="Gemma4ForCausalLM",
    target="tt_hostmesh.gemma.generator:Gemma4ForCausalLM",
    write=write_gemma4,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    unserved=unserved,
    cells={"prefix cache": turned_off("prefix_caching", "Prefix caching is not supported"), "images": TEXT_ONLY},
)
