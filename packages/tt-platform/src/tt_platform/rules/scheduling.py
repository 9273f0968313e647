"""Rules about scheduling: chunked prefill, the token budget, async scheduling, the scheduler class."""

from __future__ import annotations

from tt_platform.capacity import rows_for
from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, adjust, inform, settle_default
from tt_platform.rules.rule import rule

SCHEDULER_CLASS = "vllm_tt_plugin.scheduler.TTScheduler"
LANE_SCHEDULER_CLASS = "vllm_tt_plugin.lane_scheduler.TTLaneCoordinator"

_MAX_NUM_SEQS = "--max-num-seqs"


@rule("Sequences are held in the next larger number of rows that the model class can be loaded with.")
def rows(facts: ConfigFacts) -> Finding | None:
    wanted = facts.max_num_seqs // facts.lanes
    if not facts.batch_sizes or wanted in facts.batch_sizes:
        return None
    sizes = ", ".join(map(str, facts.batch_sizes))
    held_in = rows_for(wanted, facts.batch_sizes)
    if held_in not in facts.batch_sizes:
        text = f"{_MAX_NUM_SEQS} {wanted} may fail to load: {facts.model_class} is known to take {sizes} rows"
        return inform(_MAX_NUM_SEQS, wanted, text, warn=True)
    text = f"{_MAX_NUM_SEQS} {wanted} runs in {held_in} rows: {facts.model_class} takes {sizes}"
    return inform(_MAX_NUM_SEQS, wanted, text)


@rule("Prompts are split over steps only for models that declare it.")
def chunked_prefill(facts: ConfigFacts) -> Finding | None:
    if not facts.chunked_prefill or facts.supports_chunked_prefill or facts.architecture is None:
        return None
    return settle_default(
        "--enable-chunked-prefill",
        True,
        f"Chunked prefill is not supported for `model_type={facts.model_type}`; disabling it.",
        chunked_prefill=False,
    )


@rule("With chunked prefill off nothing may split a prompt: long_prefill_token_threshold is cleared.")
def no_prefill_threshold(facts: ConfigFacts) -> Finding | None:
    if facts.chunked_prefill or facts.long_prefill_token_threshold == 0:
        return None
    return adjust(
        "--long-prefill-token-threshold",
        facts.long_prefill_token_threshold,
        f"long_prefill_token_threshold={facts.long_prefill_token_threshold} splits prompts, "
        "but chunked prefill is disabled; clearing it",
        long_prefill_token_threshold=0,
    )


@rule("With chunked prefill off the token budget holds a whole prompt; a longer prompt could never be scheduled.")
def whole_prompt_budget(facts: ConfigFacts) -> Finding | None:
    scheduled = facts.max_num_scheduled_tokens
    tight = facts.max_num_batched_tokens < facts.max_model_len
    tight_schedule = scheduled is not None and scheduled < facts.max_model_len
    if facts.chunked_prefill or facts.architecture is None or not (tight or tight_schedule):
        return None
    changes: dict[str, object] = {"max_num_batched_tokens": max(facts.max_num_batched_tokens, facts.max_model_len)}
    if tight_schedule:
        changes["max_num_scheduled_tokens"] = facts.max_model_len
    return adjust(
        "--max-num-batched-tokens",
        facts.max_num_batched_tokens,
        f"max_num_batched_tokens={facts.max_num_batched_tokens} < max_model_len={facts.max_model_len} "
        f"with chunked prefill disabled, bumping to {facts.max_model_len}",
        **changes,
    )


@rule("A multimodal input is never split over two chunks.")
def whole_multimodal_inputs(facts: ConfigFacts) -> Finding | None:
    if not (facts.chunked_prefill and facts.class_multimodal and facts.chunked_multimodal):
        return None
    return adjust(
        "--disable-chunked-mm-input",
        False,
        "Chunked prefill: multimodal inputs are kept whole (disable_chunked_mm_input)",
        chunked_multimodal=False,
    )


@rule("An image that is kept whole may need the whole budget of a step: long_prefill_token_threshold is cleared.")
def whole_budget_for_images(facts: ConfigFacts) -> Finding | None:
    whole = facts.chunked_prefill and facts.class_multimodal and not facts.chunked_multimodal
    if not whole or facts.long_prefill_token_threshold == 0:
        return None
    return adjust(
        "--long-prefill-token-threshold",
        facts.long_prefill_token_threshold,
        f"long_prefill_token_threshold={facts.long_prefill_token_threshold} would hold back a larger image for ever, "
        "since multimodal inputs are kept whole; clearing it",
        long_prefill_token_threshold=0,
    )


@rule("No prompt waits for room in vLLM's encoder cache: images go to the model with their prompt, nothing is cached.")
def encoder_room(facts: ConfigFacts) -> Finding | None:
    needed = facts.max_num_seqs * facts.max_model_len
    if not facts.class_multimodal or facts.encoder_room >= needed:
        return None
    return settle_default(
        "encoder_cache_size",
        facts.encoder_room,
        f"encoder_cache_size={facts.encoder_room} tokens would hold back images, of which the worker caches nothing; "
        f"setting it to {needed}",
        encoder_room=needed,
    )


@rule("The budget of chunked prefill is logged; it is left as vLLM or the operator set it.")
def chunked_prefill_state(facts: ConfigFacts) -> Finding | None:
    if not facts.chunked_prefill or facts.architecture is None:
        return None
    return inform(
        "--enable-chunked-prefill",
        True,
        f"Chunked prefill enabled for {facts.model_class}: max_num_batched_tokens={facts.max_num_batched_tokens}, "
        f"long_prefill_token_threshold={facts.long_prefill_token_threshold}",
    )


@rule("Async scheduling is on only for models that declare async decode.")
def async_scheduling(facts: ConfigFacts) -> Finding | None:
    if not facts.async_scheduling or facts.supports_async_decode or facts.architecture is None:
        return None
    return adjust(
        "--async-scheduling",
        True,
        f"Async scheduling was requested, but TT model {facts.model_class} does not declare support "
        "(supports_async_decode); turning it off",
        async_scheduling=False,
    )


@rule("The scheduler is the plugin's: a step is all prefill or all decode. An operator's own class is kept.")
def scheduler_class(facts: ConfigFacts) -> Finding | None:
    wanted = LANE_SCHEDULER_CLASS if facts.lanes > 1 else SCHEDULER_CLASS
    if facts.scheduler_class == wanted:
        return None
    if facts.scheduler_class in (None, SCHEDULER_CLASS, LANE_SCHEDULER_CLASS):
        text = (
            f"Using TTLaneCoordinator with {facts.lanes} in-process TT lanes"
            if facts.lanes > 1
            else f"Using scheduler class {wanted}"
        )
        return settle_default("--scheduler-cls", facts.scheduler_class, text, scheduler_class=wanted)
    return inform(
        "--scheduler-cls",
        facts.scheduler_class,
        f"--scheduler-cls {facts.scheduler_class} is kept; it must never mix prefill with decode in one step, "
        f"as {wanted} does",
        warn=True,
    )


RULES = (
    rows,
    chunked_prefill,
    no_prefill_threshold,
    whole_prompt_budget,
    whole_multimodal_inputs,
    whole_budget_for_images,
    encoder_room,
    chunked_prefill_state,
    async_scheduling,
    scheduler_class,
)
