"""One lane of the simulated engine: a scheduler of token counts in the manner of vLLM's."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tt_scheduler.admission import WaitingPrompt, admission_order
from tt_scheduler.phase import Demand, Phase
from tt_scheduler.plan import Outcome, Pass, Step


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
