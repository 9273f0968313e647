"""TTScheduler: vLLM's scheduler, one phase a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tt_scheduler.vllm.pacing import Pacing, chunking_of, interleave_options
from tt_scheduler.vllm.passes import PassLog, PhasedScheduler

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.outputs import ModelRunnerOutput


class TTScheduler(PhasedScheduler):
    """Wraps `schedule()`; everything else is vLLM's. Serves synchronous and asynchronous scheduling."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pacing = Pacing(interleave_options(self.vllm_config), chunking_of(self.vllm_config, self.block_size))

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        passes = PassLog(self)
        step = self._pacing.step(self.demand(), lambda permit: passes.run(permit, throttle_prefills))
        output = passes.kept()
        self._pacing.started(output, step)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        self._pacing.finished(scheduler_output)
        return super().update_from_output(scheduler_output, model_runner_output)
