"""Rules about vLLM features that a Tenstorrent model cannot run."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import Finding, inform, reject, settle_default
from tt_platform.rules.rule import rule

# The backends in which vLLM honours disable_any_whitespace; auto chooses one of the first two for JSON.
_COMPACT_BACKENDS = ("auto", "xgrammar", "guidance")


@rule("LoRA is not served.")
def no_lora(facts: ConfigFacts) -> Finding | None:
    if not facts.lora:
        return None
    return reject("--enable-lora", True, allowed="unset", do="serve merged weights instead of an adapter")


@rule("Speculative decoding is refused: the worker of this release does not verify drafts.")
def no_speculative_decoding(facts: ConfigFacts) -> Finding | None:
    if facts.speculative_method is None:
        return None
    declared = "the model declares support, but this release's worker does not verify drafts yet; "
    prefix = declared if facts.supports_spec_decode else ""
    return reject(
        "--speculative-config", facts.speculative_method, allowed="unset", do=f"{prefix}remove it to serve the model"
    )


@rule("JSON grammars are compact: endless whitespace is a loop that never ends a request.")
def compact_json(facts: ConfigFacts) -> Finding | None:
    if not facts.any_whitespace or facts.structured_backend not in _COMPACT_BACKENDS:
        return None
    return settle_default(
        "--structured-outputs-config",
        facts.structured_backend,
        "Structured outputs: disable_any_whitespace is set, so JSON is compact",
        any_whitespace=False,
    )


@rule("A grammar backend that cannot make compact JSON is told to the operator.")
def loose_json(facts: ConfigFacts) -> Finding | None:
    if not facts.any_whitespace or facts.structured_backend in _COMPACT_BACKENDS:
        return None
    return inform(
        "--structured-outputs-config",
        facts.structured_backend,
        f"Structured outputs: backend {facts.structured_backend} cannot make compact JSON; a model may loop on spaces",
        warn=True,
    )


RULES = (no_lora, no_speculative_decoding, compact_json, loose_json)
