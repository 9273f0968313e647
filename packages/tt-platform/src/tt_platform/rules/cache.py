"""Rules about the KV cache."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, adjust, inform, settle_default
from tt_platform.rules.rule import rule

DEFAULT_BLOCK_SIZE = 64
TILE = 32  # tokens; rows of a tile on the device


@rule("Blocks are of 64 tokens unless the operator chose a size: cached prefixes must end on whole tiles of 32.")
def block_size(facts: ConfigFacts) -> Finding | None:
    if facts.block_size_chosen or facts.block_size == DEFAULT_BLOCK_SIZE:
        return None
    return settle_default(
        "--block-size",
        facts.block_size,
        f"Setting block_size={DEFAULT_BLOCK_SIZE} (vLLM's default is {facts.block_size})",
        block_size=DEFAULT_BLOCK_SIZE,
    )


@rule("A block size that is no multiple of 32 is told to the operator: real models refuse it.")
def block_size_on_tiles(facts: ConfigFacts) -> Finding | None:
    if facts.block_size % TILE == 0:
        return None
    return inform(
        "--block-size",
        facts.block_size,
        f"--block-size {facts.block_size} is no multiple of {TILE}: tt-metal models need whole tiles; prefer 64",
        warn=True,
    )


@rule("Prefix caching is on only for models that declare it; recurrent layers then keep one state a request.")
def prefix_caching(facts: ConfigFacts) -> Finding | None:
    if not facts.prefix_caching or facts.supports_prefix_caching or facts.architecture is None:
        return None
    changes: dict[str, object] = {"prefix_caching": False}
    if facts.mamba_cache_mode != "none":
        changes["mamba_cache_mode"] = "none"
    return adjust(
        "--enable-prefix-caching",
        True,
        f"Prefix caching is not supported in TT backend for {facts.model_class}, disabling it",
        **changes,
    )


@rule("The state of prefix caching is always logged.")
def prefix_caching_state(facts: ConfigFacts) -> Finding | None:
    state = "enabled" if facts.prefix_caching else "disabled"
    return inform("--enable-prefix-caching", facts.prefix_caching, f"Automatic prefix caching is {state}")


RULES = (block_size, block_size_on_tiles, prefix_caching, prefix_caching_state)
