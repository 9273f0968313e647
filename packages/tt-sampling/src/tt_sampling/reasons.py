"""Why a step cannot be sampled on the device."""

import logging
from collections import Counter
from enum import Enum

logger = logging.getLogger("vllm.tt.sampling")


class Reason(Enum):
    """One reason for the host. The value is its name in metrics and logs."""

    # Of the step.
    MODE_OFF = "device sampling is not switched on"
    PREFILL_IN_DECODE_ONLY = "prefill step, and sample_on_device_mode is decode_only"
    ALWAYS_COMPAT = "always_compat_sampling"
    CHUNK_NOT_FINAL = "a prompt chunk that is not the last"
    # Of a row.
    PENALTIES = "penalties, which this model's device sampler lacks"
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
    """

    def __init__(self) -> None:
        self.steps: Counter[Reason] = Counter()
        self.host_steps = 0
        self.device_steps = 0

    def count(self, reasons: frozenset[Reason]) -> None:
        """One step was placed; no reasons means on the device."""
        if not reasons:
            self.device_steps += 1
            return
        self.host_steps += 1
        for reason in reasons:
            if reason not in self.steps:
                logger.info("Sampling on the host because of: %s", reason.value)
            self.steps[reason] += 1
