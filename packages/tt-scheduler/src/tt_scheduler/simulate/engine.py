"""A serving engine of token counts: lanes under the real phase policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tt_scheduler.lanes import LaneLoad, lane_permits, least_loaded
from tt_scheduler.phase import NO_DEMAND, Demand, Phase
from tt_scheduler.plan import Outcome, Pass, Step
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.rows import LaneRows
from tt_scheduler.simulate.lane import EngineSize, Lane, Scheduled, SimRequest


class Engine:
    """Lanes under one policy. `schedule` decides a step, `complete` delivers its tokens.

    An engine that overlaps schedules the next step before it completes the last one.
    """

    def __init__(self, size: EngineSize, policy: PhasePolicy) -> None:
        self.size = size
        self.policy = policy
        self.lanes = [Lane(size) for _ in range(size.lanes)]
        self.rows = LaneRows(size.lanes, size.rows // size.lanes)
        self.lane_of: dict[str, int] = {}

    def add(self, request: SimRequest) -> None:
        """Bind a request to the least loaded lane. Raises ValueError for one that can never be served."""
        lane = least_loaded([LaneLoad(len(lane.waiting), len(lane.running)) for lane in self.lanes])
        total = request.prompt + request.output
        if total > self.size.kv_tokens // self.size.lanes // self.size.block * self.size.block:
            raise ValueError(f"{request.name} needs {total} tokens of KV cache: a lane has not so many")
        if not self.size.chunked and total > self.size.budget:
            raise ValueError(f"{request.name} may need a prefill of {total} tokens: the budget is {self.size.budget}")
        request.known = request.prompt
        self.lane_of[request.name] = lane
        self.lanes[lane].waiting.append(request)

    def abort(self, request: SimRequest) -> None:
        self._leave(request)

    def requests(self) -> Iterator[SimRequest]:
        for lane in self.lanes:
            yield from lane.running
            yield from lane.waiting

    @property
    def busy(self) -> bool:
        return any(lane.running or lane.waiting for lane in self.lanes)

    @property
    def kv_used(self) -> float:
        """Share of the KV blocks that are taken, 0 to 1."""
        free = sum(lane.free for lane in self.lanes)
        return 1 - free / (self.size.kv_tokens // self.size.lanes // self.size.block * self.size.lanes)

    def demands(self) -> list[Demand]:
        return [lane.demand() for lane in self.lanes]

    def schedule(self, now: float = 0.0) -> Scheduled:
        """Decide the next step. now: seconds, on the clock of `SimRequest.arrived`."""
        demands = self.demands()
        preempted = [False] * len(self.lanes)
        scheduled = Scheduled(Step(Phase.EMPTY, 0))

        def attempt(permit: Pass) -> Outcome:
            tokens = 0
            permits = lane_permits(permit, demands, preempted, self.size.block)
            for index, (lane, own) in enumerate(zip(self.lanes, permits, strict=True)):
                outcome = lane.run_pass(own, scheduled, now)
                tokens += outcome.tokens
                preempted[index] |= outcome.preempted
            return Outcome(tokens)

        scheduled.step = self.policy.step(sum(demands, NO_DEMAND), attempt)
        self._settle_rows()
        return scheduled

    def complete(self, scheduled: Scheduled) -> list[SimRequest]:
        """Deliver the tokens of a step. Returns who got one, without requests that were aborted meanwhile."""
        alive = [request for request in scheduled.sampled if not request.done]
        for request in alive:
            request.delivered += 1
            if request.delivered >= request.output:
                self._leave(request)
        return alive

    def _leave(self, request: SimRequest) -> None:
        self.lanes[self.lane_of.pop(request.name)].leave(request)
        if request.name in self.rows:
            self.rows.release(request.name)

    def _settle_rows(self) -> None:
        """Rows follow the running lists: whoever was preempted gives its row up before anybody gets one."""
        for request in self._preempted():
            self.rows.release(request.name)
        for index, lane in enumerate(self.lanes):
            for request in lane.running:
                if request.name not in self.rows:
                    self.rows.assign(request.name, index)

    def _preempted(self) -> Iterable[SimRequest]:
        return [r for lane in self.lanes for r in lane.waiting if r.name in self.rows]
