"""Sliding and full attention by turns: two KV cache groups in one pool."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packages" / "tt-hostmesh" / "tests"))

from family import TEXT_ONLY, Family
from launch import Run
from layered_checkpoints import VOCABULARY, write_gemma3
from mixture import mixture
from plain_reference import TransformersReference

FAMILY = Family(
    name="gemma3",
    label="Gemma 3: five layers with a sliding window for each without",
    architecture="Gemma3ForCausalLM",
    target="tt_hostmesh.gemma.generator:Gemma3ForCausalLM",
    write=write_gemma3,
    reference=TransformersReference,
    requests=mixture(VOCABULARY),
    few_blocks=Run(environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "64"}),
    cells={"images": TEXT_ONLY},
)
