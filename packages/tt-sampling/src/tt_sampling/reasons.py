"""Why a step cannot be sampled on the device."""

import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum

logger = logging.getLogger("vllm.tt.sampling")


class Reason(Enum):
    """One reason for the host. The value says it in logs; metrics and the step log have the member's name."""

    # Of the step.
    MODE_OFF = "device sampling is not switched on"
    PREFILL_IN_DECODE_ONLY = "prefill step, and sample_on_device_mode is decode_only"
    ALWAYS_COMPAT = "always_compat_sampling"
    CHUNK_NOT_FINAL = "a prompt chunk that is not the last"
    # Of a row.
    PENALTIES = "penalties, which this model's device sampler lacks"
    REPLAYED_PENALTIES = "penalties of a resumed request, whose output a prefill call cannot tell from its prompt"
    MIN_P = "min_p"
    LOGIT_BIAS = "logit_bias"
    MIN_TOKENS = "min_tokens"
    ALLOWED_TOKEN_IDS = "allowed_token_ids"
    BAD_WORDS = "bad_words"
    LOGITS_PROCESSOR = "a custom logits processor"
    STRUCTURED_OUTPUT = "structured output"
    THINKING_BUDGET = "thinking_token_budget"
    LOGPROBS = "logprobs, which this mesh does not compute"
    TOP_LOGPROBS = "top logprobs, which this model's device sampler lacks"
    LOGPROB_TOKEN_IDS = "logprobs of chosen tokens"
    TOP_K = "top_k beyond the device sampler's"
    SEED = "a seed, which is kept off the device"


class ReasonTally:
    """Counts where steps were sampled, and why on the host. Each reason is logged the first time it is met.

    steps: host-sampled steps per reason; a step with two reasons counts for both.
    publish: told the reasons of every step, none for a step on the device
    """

    def __init__(self, publish: Callable[[frozenset[Reason]], None] | None = None) -> None:
        self.steps: Counter[Reason] = Counter()
        self.host_steps = 0
        self.device_steps = 0
        self._publish = publish

    def count(self, reasons: frozenset[Reason]) -> None:
        """One step was placed; no reasons means on the device."""
        if self._publish is not None:
            self._publish(reasons)
        if not reasons:
            self.device_steps += 1
            return
        self.host_steps += 1
        for reason in reasons:
            if reason not in self.steps:
                logger.info("Sampling on the host because of: %s", reason.value)
            self.steps[reason] += 1

    def summary(self) -> str:
        """One line for the end of a run, the most frequent reason first."""
        places = f"{self.device_steps} steps sampled on the device, {self.host_steps} on the host"
        why = ", ".join(f"{reason.value} ({steps})" for reason, steps in self.steps.most_common())
        return f"{places}, because of: {why}" if why else places
