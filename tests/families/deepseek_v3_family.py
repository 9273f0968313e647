"""A latent cache, and experts in groups."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tt-hostmesh" / "tests"))

from family import TEXT_ONLY, Family, turned_off
from layered_checkpoints import VOCABULARY, write_deepseek_v3
from mixture import mixture
from plain_reference import TransformersReference

FAMILY = Family(
    name="deepseek_v3",
    label="DeepSeek V3: a latent cache, experts in groups",
    architecture="DeepseekV3ForCausalLM",
    target="tt_hostmesh.deepseek_v3.generator:DeepseekV3ForCausalLM",
    write=write_deepseek_v3,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    cells={
        "chunks": turned_off("chunked_prefill", "Chunked prefill is not supported"),
        "prefix cache": turned_off("prefix_caching", "Prefix caching is not supported"),
        "async": turned_off("async_scheduling", "does not declare support (supports_async_decode)"),
        "images": TEXT_ONLY,
    },
)
