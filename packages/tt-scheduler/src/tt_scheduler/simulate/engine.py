"""A serving engine of token counts: queues, KV blocks, chunks and lanes, under the real phase policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tt_scheduler.admission import WaitingPrompt, admission_order
from tt_scheduler.lanes import LaneLoad, lane_permits, least_loaded
from tt_scheduler.phase import NO_DEMAND, Demand, Phase
from tt_scheduler.plan import Outcome, Pass, Step
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.rows import LaneRows


@dataclass(frozen=True, slots=True)
class EngineSize:
    """Limits of the engine.

    rows:           requests that run at once, all lanes together
    kv_tokens:      KV cache of all lanes together, tokens
    block:          tokens of a KV block
    budget:         most prompt tokens of a prefill step and lane
    chunked:        whether a prompt may be split; if not, `budget` must hold the longest prompt
    lanes:          independent groups of rows
    """

    rows: int = 32
    kv_tokens: int = 131_072
    block: int = 64
    budget: int = 8192
    chunked: bool = True
    lanes: int = 1

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.rows < 1 or self.rows % self.lanes:
            raise ValueError(f"rows={self.rows} cannot be divided into lanes={self.lanes}")
        if self.block < 1 or self.budget < 1 or self.kv_tokens // self.lanes < self.block:
            raise ValueError(f"block, budget and kv_tokens must hold at least one block a lane: {self}")


@dataclass(slots=True, eq=False)
class SimRequest:
    """A request in the engine.

    known:      tokens of prompt and output, including the one that is being computed
    computed:   tokens whose KV is in the cache or being computed
    delivered:  output tokens of steps that ended
    """

    name: str
    prompt: int
    output: int
    arrived: float = 0.0
    ready: bool = True  # its grammar is compiled
    known: int = 0
    computed: int = 0
    delivered: int = 0
    blocks: int = 0
    running: bool = False
    prefilled: bool = False
    done: bool = False

    @property
    def generated(self) -> int:
        """Output tokens, including the one that is being computed."""
        return self.known - self.prompt


@dataclass(slots=True)
class Scheduled:
    """One step: what the policy ran and who gets a token from it."""

    step: Step
    sampled: list[SimRequest] = field(default_factory=list[SimRequest])
    users: int = 0
    context: int = 0


class Lane:
    """One lane: a scheduler in the manner of vLLM, first come first served, preemption from the end."""

    def __init__(self, size: EngineSize) -> None:
        self.size = size
        self.capacity = size.rows // size.lanes
        self.free = size.kv_tokens // size.lanes // size.block
        self.waiting: deque[SimRequest] = deque()
        self.running: list[SimRequest] = []

    def demand(self) -> Demand:
        chunks = decodable = 0
        for request in self.running:
            if not request.prefilled:
                chunks += 1
            elif request.generated < request.output:
                decodable += 1
        return Demand(len(self.waiting) if len(self.running) < self.capacity else 0, chunks, decodable)

    def run_pass(self, permit: Pass, into: Scheduled, now: float = 0.0) -> Outcome:
        """Schedule one pass; whom it computes goes into `into`."""
        if permit.phase is Phase.PREFILL:
            if permit.shortest_first and len(self.waiting) > 1:
                self._sort_waiting(now)
            return self._prefill(permit, into)
        return self._decode(into) if permit.phase is Phase.DECODE else Outcome(0)

    def _sort_waiting(self, now: float) -> None:
        waiting = list(self.waiting)
        prompts = [WaitingPrompt(r.known, now - r.arrived, r.generated > 0) for r in waiting]
        self.waiting = deque(waiting[index] for index in admission_order(prompts))

    def _decode(self, into: Scheduled) -> Outcome:
        tokens = 0
        preempted = False
        index = 0
        while index < len(self.running):
            request = self.running[index]
            if not request.prefilled or request.generated >= request.output:
                index += 1
                continue
            fits, took = self._make_room(request, 1)
            preempted |= took
            if not fits:
                break
            self._compute(request, 1, into)
            tokens += 1
            index += 1
        return Outcome(tokens, preempted)

    def _prefill(self, permit: Pass, into: Scheduled) -> Outcome:
        budget = left = min(self.size.budget, permit.max_tokens or self.size.budget)
        preempted = False
        for request in [r for r in self.running if not r.prefilled]:
            if not left:
                break
            if not request.running:
                continue
            count = min(request.known - request.computed, left)
            fits, took = self._make_room(request, count)
            preempted |= took
            if not fits:
                break
            self._compute(request, count, into)
            left -= count
        if not preempted:
            left -= self._admit(permit, left, into)
        return Outcome(budget - left, preempted)

    def _admit(self, permit: Pass, budget: int, into: Scheduled) -> int:
        left = budget
        places = self.capacity - len(self.running)
        if permit.max_admissions is not None:
            places = min(places, permit.max_admissions)
        for request in list(self.waiting):
            if not places or not left:
                break
            if not request.ready:
                continue
            whole = request.known > left and not self.size.chunked
            if whole or self._blocks(request.known) > self.free:
                break
            self.waiting.remove(request)
            self.running.append(request)
            request.running = True
            count = min(request.known, left)
            self._grow(request, count)
            self._compute(request, count, into)
            left -= count
            places -= 1
        return budget - left

    def _compute(self, request: SimRequest, count: int, into: Scheduled) -> None:
        request.computed += count
        into.users += 1
        into.context += request.computed
        if request.computed == request.known:
            request.known += 1
            request.prefilled = True
            into.sampled.append(request)

    def _make_room(self, request: SimRequest, count: int) -> tuple[bool, bool]:
        """Blocks for `count` more tokens; preempts from the end. Returns whether it fits and whether it preempted."""
        preempted = False
        while self._blocks(request.computed + count) - request.blocks > self.free:
            victim = self.running.pop()
            self._preempt(victim)
            preempted = True
            if victim is request:
                return False, True
        self._grow(request, count)
        return True, preempted

    def _grow(self, request: SimRequest, count: int) -> None:
        need = self._blocks(request.computed + count) - request.blocks
        request.blocks += need
        self.free -= need

    def _preempt(self, request: SimRequest) -> None:
        self.release(request)
        request.computed = 0
        request.running = request.prefilled = False
        self.waiting.appendleft(request)

    def release(self, request: SimRequest) -> None:
        self.free += request.blocks
        request.blocks = 0

    def leave(self, request: SimRequest) -> None:
        """Take a request out, wherever it is."""
        request.done = True
        self.release(request)
        if request.running:
            self.running.remove(request)
            request.running = False
        else:
            self.waiting.remove(request)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.size.block)


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
