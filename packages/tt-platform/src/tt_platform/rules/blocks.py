"""Rules about models that put out blocks of tokens (tt-metal contract 1.12). Silent for every other model."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, adjust, reject, settle_default
from tt_platform.rules.rule import Rule, rule

TILE = 32  # tokens; rows of a tile on the device
_MODE = "additional_config.tt.sample_on_device_mode"


def _blocks(facts: ConfigFacts) -> bool:
    return facts.output_tokens_per_step > 1 and facts.architecture is not None


def _plain(facts: ConfigFacts) -> bool:
    return _blocks(facts) and not facts.adaptive_blocks


def _of(facts: ConfigFacts) -> str:
    return f"{facts.model_class} puts out blocks of {facts.output_tokens_per_step} tokens"


@rule("Of the forms of block output, two are run: a block every step, and a block for a lone row.")
def block_forms(facts: ConfigFacts) -> Finding | None:
    if not _blocks(facts) or not facts.unserved_blocks:
        return None
    return reject(
        "--model",
        facts.architecture,
        allowed="models with plain or adaptive block output",
        do=f"{facts.model_class} declares {', '.join(facts.unserved_blocks)}, which is not implemented",
    )


@rule("A class with block output has the hooks that end a request and a captured trace, or move a slot.")
def block_hooks(facts: ConfigFacts) -> Finding | None:
    if not _blocks(facts):
        return None
    several = facts.adaptive_blocks and facts.max_num_seqs > 1
    missing = [name for name in facts.missing_block_hooks if several or name != "note_state_slots_moved"]
    if not missing:
        return None
    return reject(
        "--model", facts.architecture, allowed="classes with those hooks", do=f"{_of(facts)} and has no {missing[0]}"
    )


@rule("Blocks are sampled on the device: in every step, or for adaptive output at least in decode steps.")
def block_sampling(facts: ConfigFacts) -> Finding | None:
    allowed = ("all", "decode_only") if facts.adaptive_blocks else ("all",)
    mode = facts.options.sample_on_device_mode
    if not _blocks(facts) or mode in allowed:
        return None
    return reject(_MODE, mode, allowed=" or ".join(allowed), do=f"set it: {_of(facts)}, sampled on the device")


@rule("Block output does not go together with drafts, logits processors, vLLM's own diffusion or its Rust front end.")
def block_features(facts: ConfigFacts) -> Finding | None:
    asked = {
        "--speculative-config": facts.speculative_method is not None,
        "--logits-processors": facts.logits_processors,
        "--diffusion-config": facts.diffusion,
        "VLLM_USE_RUST_FRONTEND": facts.rust_front_end,
    }
    option = next((name for name, given in asked.items() if given), None)
    if not _blocks(facts) or option is None:
        return None
    return reject(option, True, allowed="unset", do=f"{_of(facts)}; remove it")


@rule("A class with block output samples by its own rule: it declares no largest top-k.")
def block_top_k(facts: ConfigFacts) -> Finding | None:
    if not _blocks(facts) or facts.max_device_top_k is None:
        return None
    return reject(
        "--model",
        facts.architecture,
        allowed="classes without max_device_top_k",
        do=f"{_of(facts)} and declares max_device_top_k {facts.max_device_top_k}; correct the model class",
    )


@rule("Plain block output runs in one engine; adaptive in one or several, but never in lanes.")
def block_engines(facts: ConfigFacts) -> Finding | None:
    several = facts.data_parallel_size > 1 or facts.lanes > 1
    if not several or not (_plain(facts) or (_blocks(facts) and facts.data_parallel_kind == "lanes")):
        return None
    return reject("--data-parallel-size", facts.data_parallel_size, allowed="1", do=_of(facts))


@rule("Plain block output runs in the engine's own process.")
def block_executor(facts: ConfigFacts) -> Finding | None:
    if not _plain(facts) or facts.executor_backend in (None, "uni"):
        return None
    return reject("--distributed-executor-backend", facts.executor_backend, allowed="uni", do=_of(facts))


@rule("Plain block output serves one request at a time.")
def block_sequences(facts: ConfigFacts) -> Finding | None:
    if not _plain(facts) or facts.max_num_seqs == 1:
        return None
    return adjust(
        "--max-num-seqs", facts.max_num_seqs, f"Setting max_num_seqs=1: {_of(facts)}, one request", max_num_seqs=1
    )


@rule("Plain block output is not overlapped.")
def block_async(facts: ConfigFacts) -> Finding | None:
    if not _plain(facts) or not facts.async_scheduling:
        return None
    return adjust(
        "--async-scheduling", True, f"Turning async scheduling off: {_of(facts)}, one at a time", async_scheduling=False
    )


@rule("With block output no prompt is split and no cached prefix is used: a model knows its requests by their blocks.")
def block_prompts(facts: ConfigFacts) -> Finding | None:
    if not _blocks(facts) or not (facts.chunked_prefill or facts.prefix_caching):
        return None
    return adjust(
        "--enable-prefix-caching, --enable-chunked-prefill",
        True,
        f"Turning prefix caching and chunked prefill off: {_of(facts)}",
        chunked_prefill=False,
        prefix_caching=False,
    )


@rule("The context holds a prompt of one tile and one block.")
def block_context(facts: ConfigFacts) -> Finding | None:
    least = -(-(TILE + facts.output_tokens_per_step) // TILE) * TILE
    if not _blocks(facts) or facts.max_model_len >= least:
        return None
    return reject("--max-model-len", facts.max_model_len, allowed=f"{least} or more", do=_of(facts))


@rule("What a model class declares of its block output travels with the configuration to the scheduler and the worker.")
def block_output(facts: ConfigFacts) -> Finding | None:
    wanted = {
        "width": facts.output_tokens_per_step,
        "adaptive": facts.adaptive_blocks,
        "max_prompt": facts.block_max_prompt,
        "extent": facts.block_extent,
    }
    if not _blocks(facts) or facts.block_output == wanted:
        return None
    return settle_default("--model", facts.architecture, f"Block output: {_of(facts)}", block_output=wanted)


RULES: tuple[Rule, ...] = (
    block_forms,
    block_hooks,
    block_sampling,
    block_features,
    block_top_k,
    block_engines,
    block_executor,
    block_sequences,
    block_async,
    block_prompts,
    block_context,
    block_output,
)
