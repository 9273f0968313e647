"""Rules about where tokens are sampled and what is reported about them."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, adjust, reject
from tt_platform.rules.rule import rule

MAX_LOGPROBS = 20


@rule("Device sampling needs a model that declares it.")
def device_sampling_declared(facts: ConfigFacts) -> Finding | None:
    mode = facts.options.sample_on_device_mode
    if mode is None or facts.supports_sample_on_device or facts.architecture is None:
        return None
    return reject(
        "additional_config.tt.sample_on_device_mode",
        mode,
        allowed="unset",
        do=f"{facts.model_class} does not declare supports_sample_on_device, so it is sampled on the host",
    )


@rule("At most 20 log probabilities a token; -1, the whole vocabulary, is clamped too.")
def max_logprobs(facts: ConfigFacts) -> Finding | None:
    if 0 <= facts.max_logprobs <= MAX_LOGPROBS:
        return None
    return adjust(
        "--max-logprobs",
        facts.max_logprobs,
        f"max_logprobs={facts.max_logprobs} exceeds TT device limit of {MAX_LOGPROBS}, clamping to {MAX_LOGPROBS}",
        max_logprobs=MAX_LOGPROBS,
    )


RULES = (device_sampling_declared, max_logprobs)
