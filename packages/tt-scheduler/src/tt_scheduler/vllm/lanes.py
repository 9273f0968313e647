"""TTLaneCoordinator: several schedulers, one device step."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.interface import PauseState, SchedulerInterface

from tt_scheduler.lanes import LaneLoad, lane_permits, least_loaded
from tt_scheduler.phase import NO_DEMAND
from tt_scheduler.plan import Outcome, Pass
from tt_scheduler.vllm import _compat
from tt_scheduler.vllm.merge import LaneSchedulerOutput, merge_grammars, merge_outputs, merge_schedules, merge_stats
from tt_scheduler.vllm.pacing import Pacing, chunking_of, interleave_options
from tt_scheduler.vllm.passes import PassLog, PhasedScheduler

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request, RequestStatus

LANE_COUNT_KEY = "_tt_resolved_lane_count"


class TTLaneCoordinator(SchedulerInterface):
    """One scheduler a lane, each with its own KV cache and block ids; all lanes take the same phase in a step.

    `max_num_seqs` is the number of rows of all lanes together, the KV cache configuration is that of one lane.
    """

    # Read by EngineCore. A lane has none: PhasedScheduler refuses KV connectors.
    connector = None
    ec_connector = None
    ends_failed_requests = _compat.CAN_END_FAILED

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        lanes = lane_count(vllm_config)
        own = lane_config(vllm_config, lanes)
        self.lanes = [PhasedScheduler(own, *args, **kwargs) for _ in range(lanes)]
        block_size = self.lanes[0].block_size
        self._pacing = Pacing(interleave_options(vllm_config), chunking_of(vllm_config, block_size))
        self._in_flight: deque[tuple[LaneSchedulerOutput, list[SchedulerOutput]]] = deque()

    # -- one step

    def schedule(self, throttle_prefills: bool = False) -> LaneSchedulerOutput:
        demands = [lane.demand() for lane in self.lanes]
        passes = [PassLog(lane) for lane in self.lanes]

        def attempt(permit: Pass) -> Outcome:
            permits = lane_permits(permit, demands, [log.preempted for log in passes], self._pacing.chunking.quantum)
            outcomes = [log.run(own, throttle_prefills) for log, own in zip(passes, permits, strict=True)]
            tokens, requests = (sum(counts) for counts in zip(*((o.tokens, o.requests) for o in outcomes), strict=True))
            return Outcome(tokens, requests=requests)

        step = self._pacing.step(sum(demands, NO_DEMAND), attempt)
        parts = [log.kept() for log in passes]
        output = merge_schedules(parts)
        self._in_flight.append((output, parts))
        self._pacing.started(output, step)
        return output

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        if not scheduler_output.has_structured_output_requests:
            return None
        parts = zip(self.lanes, self._parts(scheduler_output), strict=True)
        return merge_grammars(lambda lane=lane, part=part: lane.get_grammar_bitmask(part) for lane, part in parts)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        self._pacing.finished(scheduler_output)
        parts = self._parts(scheduler_output)
        while self._in_flight.popleft()[0] is not scheduler_output:
            pass
        # The worker's output is indexed by request, so a lane finds its own rows in the whole.
        return merge_outputs(
            lane.update_from_output(part, model_runner_output) for lane, part in zip(self.lanes, parts, strict=True)
        )

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        for lane in self.lanes:
            lane.update_draft_token_ids(draft_token_ids)

    def update_draft_token_ids_in_output(
        self, draft_token_ids: DraftTokenIds, scheduler_output: SchedulerOutput
    ) -> None:
        for lane, part in zip(self.lanes, self._parts(scheduler_output), strict=True):
            lane.update_draft_token_ids_in_output(draft_token_ids, part)
            scheduler_output.scheduled_spec_decode_tokens.update(part.scheduled_spec_decode_tokens)

    def _parts(self, output: SchedulerOutput) -> list[SchedulerOutput]:
        for merged, parts in self._in_flight:
            if merged is output:
                return parts
        raise RuntimeError("this scheduler output is not one of the steps in flight")

    # -- requests

    def add_request(self, request: Request) -> None:
        lane = self._lane_of(request.request_id)
        if lane is None:
            lane = self.lanes[least_loaded([LaneLoad(waiting, running) for running, waiting in self._counts()])]
        lane.add_request(request)

    def has_request(self, request_id: str) -> bool:
        return self._lane_of(request_id) is not None

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        if request_ids is not None and not isinstance(request_ids, str):
            request_ids = list(request_ids)
        # Each lane passes over the ids it does not know.
        return [request for lane in self.lanes for request in lane.finish_requests(request_ids, finished_status)]

    def _lane_of(self, request_id: str) -> PhasedScheduler | None:
        """The lane that holds the request: a binding that ends with the request and cannot leak."""
        return next((lane for lane in self.lanes if request_id in lane.requests), None)

    # -- state of all lanes

    def get_request_counts(self) -> tuple[int, int]:
        counts = self._counts()
        return sum(running for running, _ in counts), sum(waiting for _, waiting in counts)

    def _counts(self) -> list[tuple[int, int]]:
        return [lane.get_request_counts() for lane in self.lanes]

    def get_num_unfinished_requests(self) -> int:
        return sum(lane.get_num_unfinished_requests() for lane in self.lanes)

    def has_finished_requests(self) -> bool:
        return any(lane.has_finished_requests() for lane in self.lanes)

    def has_requests(self) -> bool:
        return any(lane.has_requests() for lane in self.lanes)

    def get_kv_cache_usage(self) -> float:
        return sum(lane.kv_cache_manager.usage for lane in self.lanes) / len(self.lanes)

    def make_stats(self) -> SchedulerStats | None:
        stats = [stats for lane in self.lanes if (stats := lane.make_stats()) is not None]
        return merge_stats(stats) if stats else None

    @property
    def pause_state(self) -> PauseState:
        # They are only ever set together.
        return self.lanes[0].pause_state

    def set_pause_state(self, pause_state: PauseState) -> None:
        for lane in self.lanes:
            lane.set_pause_state(pause_state)

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        done = [lane.reset_prefix_cache(reset_running_requests, reset_connector) for lane in self.lanes]
        return all(done)

    def reset_encoder_cache(self) -> None:
        for lane in self.lanes:
            lane.reset_encoder_cache()

    def shutdown(self) -> None:
        for lane in self.lanes:
            lane.shutdown()


def lane_count(vllm_config: VllmConfig) -> int:
    """The number of lanes that the platform resolved. Raises ValueError when it is missing or does not fit."""
    additional = vllm_config.additional_config
    lanes = additional.get(LANE_COUNT_KEY) if isinstance(additional, dict) else None
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise ValueError(
            f'additional_config["{LANE_COUNT_KEY}"] is {lanes!r}: allowed is a whole number of at least 1; the '
            "platform writes it, so launch with --data-parallel-size instead of naming the scheduler class"
        )
    rows = vllm_config.scheduler_config.max_num_seqs
    if rows % lanes:
        raise ValueError(f"max_num_seqs={rows} cannot be divided into {lanes} lanes: use a multiple of {lanes}")
    return lanes


def lane_config(vllm_config: VllmConfig, lanes: int) -> VllmConfig:
    """The configuration that one lane sees: its share of the rows, everything else as launched."""
    events = vllm_config.kv_events_config
    if events is not None and events.enable_kv_cache_events:
        raise ValueError("kv_events_config is set: block ids are local to a lane and cannot be published; remove it")
    scheduler = copy.copy(vllm_config.scheduler_config)
    _compat.divide_rows(scheduler, lanes)
    own = copy.copy(vllm_config)
    own.scheduler_config = scheduler
    return own
