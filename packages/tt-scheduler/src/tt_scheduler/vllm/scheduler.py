"""TTScheduler: vLLM's scheduler, one phase a step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from tt_scheduler.interleave import InterleaveOptions
from tt_scheduler.phase import Phase
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.vllm.carry import carry_over
from tt_scheduler.vllm.passes import demand_of, only

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput

logger = logging.getLogger("vllm.tt.scheduler")


class TTScheduler(AsyncScheduler):
    """Wraps `schedule()`; everything else is vLLM's. Serves synchronous and asynchronous scheduling."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        options = interleave_options(self.vllm_config)
        self._policy = PhasePolicy(options)
        self._log_interleave(options)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        output: SchedulerOutput | None = None

        def attempt(phase: Phase) -> bool:
            nonlocal output
            with only(self, phase):
                result = super(TTScheduler, self).schedule(*args, **kwargs)
            output = result if output is None else carry_over(output, result)
            return result.total_num_scheduled_tokens > 0

        self._policy.step(demand_of(self), attempt)
        if output is None:
            raise RuntimeError("the phase policy attempted no pass")
        return output

    @staticmethod
    def _log_interleave(options: InterleaveOptions) -> None:
        if options.decode_interleave_enabled:
            logger.info(
                "Decode interleave enabled: at most %d prefill step(s) while requests decode, then %d decode step(s)",
                options.decode_interleave_prefill_steps,
                options.decode_interleave_decode_steps,
            )
        else:
            logger.info("Decode interleave disabled: prefill always goes first")


def interleave_options(vllm_config: VllmConfig) -> InterleaveOptions:
    """The interleave keys of `additional_config["tt"]`."""
    additional = vllm_config.additional_config or {}
    return InterleaveOptions.from_mapping(additional.get("tt") or {})
