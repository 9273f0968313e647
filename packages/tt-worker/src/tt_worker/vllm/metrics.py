"""Where steps were sampled, as Prometheus counters of this process.

vLLM's /metrics collects from other processes only through files: it shows these counters when PROMETHEUS_MULTIPROC_DIR
names an empty directory, which vLLM sets itself for several API servers, and always when the engine lives in the
process that is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from tt_sampling.reasons import Reason

if TYPE_CHECKING:
    from vllm.config import ParallelConfig

# Once in a process: a registry refuses a second metric of the same name.
_STEPS = Counter("tt:sampled_steps", "Steps by where their tokens were sampled.", ["model_name", "engine", "where"])
_REASONS = Counter("tt:host_sampled_steps", "Steps sampled on the host, by reason.", ["model_name", "engine", "reason"])


_BLOCKS = Counter("tt:block_steps", "Steps that answered with a block of tokens.", ["model_name", "engine"])
_BLOCK_TOKENS = Counter(
    "tt:block_tokens", "Tokens of such steps, up to the longest sequence's end.", ["model_name", "engine"]
)


class StepMetrics:
    """The counters of one engine."""

    def __init__(self, model_name: str | list[str] | None, parallel: ParallelConfig) -> None:
        name = model_name[0] if isinstance(model_name, list) else model_name
        self._labels = {"model_name": name or "", "engine": str(parallel.data_parallel_index)}
        self._device = _STEPS.labels(**self._labels, where="device")
        self._host = _STEPS.labels(**self._labels, where="host")
        self._of: dict[Reason, Counter] = {}
        self._blocks = _BLOCKS.labels(**self._labels)
        self._block_tokens = _BLOCK_TOKENS.labels(**self._labels)

    def count_block(self, tokens: int) -> None:
        """One step with block output."""
        self._blocks.inc()
        self._block_tokens.inc(tokens)

    def count(self, reasons: frozenset[Reason]) -> None:
        """One step; no reasons means on the device."""
        (self._host if reasons else self._device).inc()
        for reason in reasons:
            if reason not in self._of:
                self._of[reason] = _REASONS.labels(**self._labels, reason=reason.name.lower())
            self._of[reason].inc()
