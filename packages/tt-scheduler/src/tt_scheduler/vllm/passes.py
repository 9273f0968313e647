"""One scheduling pass of vLLM's scheduler that works on the requests of one phase only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.interface import PauseState

from tt_scheduler.blocks import NEUTRAL, BlockOutput, ends_in_flight
from tt_scheduler.phase import NO_DEMAND, Demand, Phase
from tt_scheduler.plan import Outcome, Pass
from tt_scheduler.vllm import _compat
from tt_scheduler.vllm.carry import carry_over
from tt_scheduler.vllm.images import WholeImageScheduler, restore_images
from tt_scheduler.vllm.ordering import order_waiting

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request


logger = logging.getLogger("vllm.tt.scheduler")

# The platform's entry in additional_config: what a model with block output declares.
BLOCK_OUTPUT_KEY = "_tt_block_output"


class PhasedScheduler(WholeImageScheduler):
    """vLLM's scheduler with two more methods: what its requests could do, and a pass of one phase.

    AsyncScheduler is the base with asynchronous scheduling off as well: its placeholders are added when a token is
    scheduled and taken away when it arrives, so between two synchronous steps there are none.
    """

    # Asked by the worker, which reports requests that it cannot go on with as `failed_requests` of its output.
    ends_failed_requests = _compat.CAN_END_FAILED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._check_supported()
        self._admission_limit = _compat.admission_limit(self)
        additional = self.vllm_config.additional_config
        self._blocks = BlockOutput.from_mapping(
            additional.get(BLOCK_OUTPUT_KEY) if isinstance(additional, dict) else None
        )
        self.num_lookahead_tokens = max(self.num_lookahead_tokens, self._blocks.lookahead)
        self._phase = Phase.EMPTY
        self._entered: dict[str, int] = {}

    def _check_supported(self) -> None:
        if not _compat.CAN_DEFER_RUNNING:
            raise RuntimeError("this vLLM release has no next_decode_eligible_step: steps of one phase are impossible")
        if self.connector is not None:
            # Its metadata is built once a pass, and a pass that schedules nothing is dropped.
            raise ValueError("kv_transfer_config is set: steps of one phase work without KV connectors only; remove it")

    def add_request(self, request: Request) -> None:
        """A request to a model with block output ends where no further block fits, and is sampled by the model."""
        if self._blocks.blocks and request.sampling_params is not None:
            request.max_tokens = min(
                request.max_tokens, self._blocks.room(request.num_prompt_tokens, self.max_model_len)
            )
            for name, value in NEUTRAL.items():
                setattr(request.sampling_params, name, value)
        super().add_request(request)

    def demand(self) -> Demand:
        """Count what the requests could do next. O(running)."""
        paused = self.pause_state
        if paused is PauseState.PAUSED_ALL:
            return NO_DEMAND
        chunks = decodable = 0
        for request in self.running:
            if request.is_prefill_chunk:
                chunks += 1
            elif not self._ends_in_flight(request):
                decodable += 1
        return Demand(_compat.count_admissible(self), chunks, decodable)

    def run_pass(self, permit: Pass, throttle_prefills: bool = False) -> SchedulerOutput:
        """One `schedule()` of vLLM within the permit. Requests of the other phase keep their place in `running`:
        they can be preempted in vLLM's own order, and every count that vLLM takes is right."""
        self._phase = permit.phase
        if permit.shortest_first:
            order_waiting(self)
        self._pass_over(prefill_chunks=permit.phase is not Phase.PREFILL)
        with self._limited(permit):
            output = super().schedule(throttle_prefills)
        restore_images(self.requests, output)
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """vLLM's, which also ends the requests that the worker reports as failed: finish reason "error", HTTP 500."""
        failed: dict[str, str] = getattr(model_runner_output, "failed_requests", {})
        # One that finished in the meantime is reported too: it has no mask any more.
        living = {id_: why for id_, why in failed.items() if (r := self.requests.get(id_)) and not r.is_finished()}
        if living:
            for why in living.values():
                logger.error("%s", why)
            _compat.fail_requests(self, living)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _pass_over(self, prefill_chunks: bool) -> None:
        """Let the next `schedule()` pass over running requests of one kind. Lasts for that one call."""
        after = self.current_step + 2
        for request in self.running:
            # vLLM's own test for the end counts one token a step.
            if request.is_prefill_chunk is prefill_chunks or (self._blocks.blocks and self._ends_in_flight(request)):
                request.next_decode_eligible_step = after

    def _ends_in_flight(self, request: Request) -> bool:
        """Whether the tokens in flight end the request, and it is not scheduled again."""
        if not self._blocks.blocks:
            return _compat.tokens_in_flight_end(request, self.max_model_len)
        ends_at = request.num_prompt_tokens + request.max_tokens
        return ends_in_flight(request.num_tokens, request.num_output_placeholders, ends_at, self.max_model_len)

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """vLLM counts one token in flight for each request that emits; the rest of a block is added here, so that the
        next step begins behind it."""
        super()._update_after_schedule(scheduler_output)
        if not self._blocks.blocks:
            return
        scheduled = [self.requests[request_id] for request_id in scheduler_output.num_scheduled_tokens]
        if self._phase is Phase.PREFILL:
            emitted = self._blocks.of_prefill
            self._entered = {id_: tokens for id_, tokens in self._entered.items() if id_ in self.requests}
            self._entered.update((request.request_id, request.num_tokens) for request in scheduled)
        else:
            emitted = self._blocks.of_decode([self._entered[request.request_id] for request in scheduled])
        for request in scheduled:
            if not request.is_prefill_chunk:
                request.num_output_placeholders += emitted - 1

    @contextmanager
    def _limited(self, permit: Pass) -> Iterator[None]:
        """Lower vLLM's limits to the permit and restore them whatever happens."""
        admissions = permit.max_admissions if permit.phase is Phase.PREFILL else 0
        limit, budget = getattr(self, self._admission_limit), self.max_num_scheduled_tokens
        bound = self.prefill_capacity_bound
        if admissions is not None:
            setattr(self, self._admission_limit, min(limit, _compat.count_running(self) + admissions))
        if permit.max_tokens is not None:
            self.max_num_scheduled_tokens = min(budget, permit.max_tokens)
        try:
            yield
        finally:
            setattr(self, self._admission_limit, limit)
            self.max_num_scheduled_tokens = budget
            if admissions == 0:
                # A pass that may not admit says nothing about whether the waiting queue fits.
                self.prefill_capacity_bound = bound


class PassLog:
    """The passes of one step on one scheduler. Whatever a pass drained travels with the one that is kept."""

    def __init__(self, scheduler: PhasedScheduler) -> None:
        self._scheduler = scheduler
        self._scheduled_before = set(scheduler.prev_step_scheduled_req_ids)
        self.output: SchedulerOutput | None = None
        self.preempted = False

    def run(self, permit: Pass, throttle_prefills: bool = False) -> Outcome:
        if self.output is not None:
            # The pass before scheduled nothing and must not count as a step of its own, or every running request
            # would be sent with all its tokens again. What it preempted does need them.
            self._scheduler.prev_step_scheduled_req_ids.update(self._scheduled_before)
        result = self._scheduler.run_pass(permit, throttle_prefills)
        if result.preempted_req_ids:
            self.preempted = True
            self._scheduled_before -= result.preempted_req_ids
        self.output = result if self.output is None else carry_over(self.output, result)
        return Outcome(result.total_num_scheduled_tokens, self.preempted, len(result.num_scheduled_tokens))

    def kept(self) -> SchedulerOutput:
        """The output of the step. Raises RuntimeError when the policy made no pass at all."""
        if self.output is None:
            raise RuntimeError("the phase policy made no pass")
        return self.output
