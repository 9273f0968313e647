"""Rules about which model is served, and how it is run."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, adjust, refuse, reject, settle_default
from tt_platform.rules.rule import rule

WORKER_CLASS = "vllm_tt_plugin.worker.TTWorker"
POOLING_WORKER_CLASS = "tt_worker.vllm.pooling.TTPoolingWorker"


@rule("The checkpoint's architecture must have a Tenstorrent class that can be imported; the error lists those known.")
def architecture_served(facts: ConfigFacts) -> Finding | None:
    if facts.model_problem is None:
        return None
    return refuse("--model", facts.architecture, facts.model_problem)


@rule("A model is run as its Tenstorrent class is made: one generates text, another embeds prompts.")
def runner_of_the_class(facts: ConfigFacts) -> Finding | None:
    if facts.architecture is None or facts.model_problem is not None:
        return None
    pooling = facts.runner_type == "pooling"
    if pooling == facts.class_pools:
        return None
    what = "embeds prompts and generates no text" if facts.class_pools else "generates text and embeds nothing"
    allowed = "pooling" if facts.class_pools else "generate"
    return reject("--runner", facts.runner_type, allowed=allowed, do=f"{facts.model_class} {what}")


@rule("A model that embeds prompts computes each one whole and at once, in one process, without a cache.")
def pooling_steps(facts: ConfigFacts) -> Finding | None:
    settled = not (facts.chunked_prefill or facts.prefix_caching or facts.async_scheduling)
    if facts.runner_type != "pooling" or not facts.class_pools or settled:
        return None
    return settle_default(
        "--runner",
        "pooling",
        f"{facts.model_class} embeds whole prompts: no chunks, no prefix cache, no async scheduling",
        chunked_prefill=False,
        prefix_caching=False,
        async_scheduling=False,
    )


@rule("Encoder-decoder models are not run.")
def no_encoder_decoder(facts: ConfigFacts) -> Finding | None:
    if not facts.encoder_decoder:
        return None
    return reject("--model", facts.architecture, allowed="decoder-only models", do="choose a decoder-only model")


@rule("Prompt embeddings cannot be given to a Tenstorrent model.")
def no_prompt_embeds(facts: ConfigFacts) -> Finding | None:
    if not facts.prompt_embeds:
        return None
    return reject("--enable-prompt-embeds", True, allowed="unset", do="send prompts as text or token ids")


@rule("A multimodal checkpoint with a text-only class is served as text: images are refused, not ignored.")
def text_only_class(facts: ConfigFacts) -> Finding | None:
    if not facts.multimodal or facts.class_multimodal or facts.text_only:
        return None
    return adjust(
        "--language-model-only",
        False,
        f"{facts.model_class} takes text only: --language-model-only is set, and requests with other media are refused",
        text_only=True,
    )


@rule("The worker class is the plugin's, unless the operator chose another.")
def worker_class(facts: ConfigFacts) -> Finding | None:
    if facts.worker_class != "auto":
        return None
    wanted = POOLING_WORKER_CLASS if facts.class_pools else WORKER_CLASS
    return settle_default("--worker-cls", "auto", f"Using worker class {wanted}", worker_class=wanted)


RULES = (
    architecture_served,
    runner_of_the_class,
    pooling_steps,
    no_encoder_decoder,
    no_prompt_embeds,
    text_only_class,
    worker_class,
)
