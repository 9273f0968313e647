"""The phase policy of one engine: options from its configuration, step times from its loop, lines in its log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tt_scheduler.clock import StepClock
from tt_scheduler.interleave import InterleaveOptions
from tt_scheduler.phase import Demand, Phase
from tt_scheduler.plan import Outcome, Pass, Step
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.target import Chunking, LatencyTarget

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.tt.scheduler")

# Prefill steps after which an estimate is worth telling.
SETTLED = 20


def interleave_options(vllm_config: VllmConfig) -> InterleaveOptions:
    """The interleave keys of `additional_config["tt"]`."""
    additional = vllm_config.additional_config
    options = additional.get("tt") if isinstance(additional, dict) else None
    return InterleaveOptions.from_mapping(options or {})


def chunking_of(vllm_config: VllmConfig, block_size: int) -> Chunking:
    """How far this launch may split prompts. An image that must stay whole forbids short chunks."""
    config = vllm_config.scheduler_config
    whole_images = config.is_multimodal_model and config.disable_chunked_mm_input
    return Chunking(allowed=bool(config.enable_chunked_prefill) and not whole_images, quantum=block_size)


class Pacing:
    """Takes each step's decision through the policy, measures the steps, and logs.

    now: the clock, seconds
    """

    def __init__(
        self, options: InterleaveOptions, chunking: Chunking, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.now = now
        self.policy = PhasePolicy(options, chunking)
        self.chunking = chunking
        self._clock = StepClock()
        self._widest = 0
        self._reported = self._warned = False
        self._log_launch(options, chunking)

    def step(self, demand: Demand, attempt: Callable[[Pass], Outcome]) -> Step:
        """Run one step through the policy."""
        step = self.policy.step(demand, attempt)
        if step.phase is Phase.DECODE and step.requests > self._widest:
            self._widest = step.requests
            logger.info("TT scheduler: widest decode batch reached %d request row(s)", self._widest)
        return step

    def started(self, output: object, step: Step) -> None:
        """The step's output leaves for the worker."""
        if self.policy.target is not None:
            self._clock.start(output, step, self.now())

    def finished(self, output: object) -> None:
        """The result of that output came back."""
        target = self.policy.target
        if target is None:
            return
        ended = self._clock.end(output, self.now())
        if ended is not None:
            self.policy.observe(*ended)
            self._report(target)

    def _report(self, target: LatencyTarget) -> None:
        """Say once what the target means on this device, and once that it cannot be held."""
        times = target.times
        if times.prefill_steps >= SETTLED and target.ready and not self._reported:
            self._reported = True
            logger.info(
                "decode_interleave_target_itl_ms=%g: decode takes %.1f ms, prefill %.1f ms + %.3f ms a token; while "
                "requests decode, prompts get %.0f tokens a second",
                target.target_ms,
                times.decode_ms,
                times.floor_ms,
                times.ms_per_token,
                target.prompt_rate,
            )
        if not target.feasible and not self._warned:
            self._warned = True
            logger.warning(
                "decode_interleave_target_itl_ms=%g cannot be held: a decode step takes %.1f ms and the shortest "
                "useful prefill step %.1f ms; running requests will wait longer. Raise the target, lower "
                "--max-num-seqs, or enable chunked prefill.",
                target.target_ms,
                times.decode_ms,
                target.shortest_prefill_ms,
            )

    @staticmethod
    def _log_launch(options: InterleaveOptions, chunking: Chunking) -> None:
        if not options.decode_interleave_enabled:
            logger.info("Decode interleave disabled: prefill always goes first")
            return
        logger.info(
            "Decode interleave enabled: at most %d prefill step(s) while requests decode, then %d decode step(s)",
            options.decode_interleave_prefill_steps,
            options.decode_interleave_decode_steps,
        )
        if options.decode_interleave_target_itl_ms is not None:
            logger.info(
                "Decode interleave aims at an inter-token latency of %g ms", options.decode_interleave_target_itl_ms
            )
            if not chunking.allowed:
                logger.warning(
                    "decode_interleave_target_itl_ms is set and prompts are not split: a running request waits for "
                    "whole prompts, whatever their length. Enable chunked prefill to hold the target."
                )
