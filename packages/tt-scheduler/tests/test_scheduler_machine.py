"""The core under random load: arrivals, aborts, grammar waits, a KV cache that is too small, one to eight lanes."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tt_scheduler import Chunking, InterleaveOptions, Phase, PhasePolicy
from tt_scheduler.simulate import Engine, EngineSize, Scheduled, SimRequest

DEVICE_MS = {Phase.PREFILL: (5.0, 0.1), Phase.DECODE: (6.0, 0.01)}


class Checked:
    """An engine whose every step is compared with what its requests allowed before."""

    def __init__(self, size: EngineSize, options: InterleaveOptions) -> None:
        self.size = size
        self.options = options
        self.engine = Engine(size, PhasePolicy(options, Chunking(size.chunked, size.block)))
        self.requests: list[SimRequest] = []
        self.aborted: set[str] = set()
        self.arrivals = 0
        self.steps = 0
        self.prefill_run = 0
        self.now = 0.0

    def add(self, prompt: int, output: int, ready: bool) -> None:
        request = SimRequest(f"r{self.arrivals}", prompt, output, self.now, ready)
        self.arrivals += 1
        self.requests.append(request)
        self.engine.add(request)

    def abort(self, request: SimRequest) -> None:
        self.aborted.add(request.name)
        self.engine.abort(request)

    @property
    def alive(self) -> list[SimRequest]:
        return [request for request in self.requests if not request.done]

    def step(self) -> Scheduled:
        before = {request.name: (request.prefilled, request.computed) for request in self.alive}
        possible = self._could_progress()
        decodable = sum(demand.decodable for demand in self.engine.demands())
        scheduled = self.engine.schedule(self.now)
        self._check_phase(scheduled, before)
        assert (scheduled.step.phase is not Phase.EMPTY) == possible
        self._check_interleave(scheduled, decodable)
        self._check_lanes()
        self.engine.complete(scheduled)
        if scheduled.step.phase is not Phase.EMPTY:
            fixed, each = DEVICE_MS[scheduled.step.phase]
            ms = fixed + each * scheduled.step.tokens
            self.engine.policy.observe(scheduled.step, ms)
            self.now += ms / 1e3
        self.steps += 1
        return scheduled

    def _could_progress(self) -> bool:
        """Whoever runs can advance; otherwise the first ready request in the queue must fit."""
        for lane in self.engine.lanes:
            if lane.running:
                return True
            if any(request.ready for request in lane.waiting):
                return True
        return False

    def _check_phase(self, scheduled: Scheduled, before: dict[str, tuple[bool, int]]) -> None:
        for request in self.alive:
            prefilled, computed = before[request.name]
            if request.computed <= computed:
                continue
            # A request that decodes had its whole prompt computed, one that prefills had not: no mixed step.
            assert (scheduled.step.phase is Phase.DECODE) == prefilled, request
            assert not prefilled or request.computed == computed + 1

    def _check_interleave(self, scheduled: Scheduled, decodable: int) -> None:
        kept = scheduled.step.phase is Phase.PREFILL and decodable
        self.prefill_run = self.prefill_run + 1 if kept else 0
        if self.options.decode_interleave_enabled and self.options.decode_interleave_target_itl_ms is None:
            assert self.prefill_run <= self.options.decode_interleave_prefill_steps

    def _check_lanes(self) -> None:
        engine = self.engine
        owners: dict[int, str] = {}
        for index, lane in enumerate(engine.lanes):
            assert len(lane.running) <= lane.capacity
            assert lane.free >= 0
            total = engine.size.kv_tokens // engine.size.lanes // engine.size.block
            assert lane.free + sum(r.blocks for r in lane.running) == total
            assert not any(request.blocks for request in lane.waiting)
            for request in lane.running:
                row = engine.rows[request.name]
                assert row // lane.capacity == index
                assert owners.setdefault(row, request.name) == request.name
        assert len(engine.rows) == len(owners)

    def forget(self) -> None:
        """Check and drop the requests that are done."""
        for request in self.requests:
            assert not request.done or request.name in self.aborted or request.delivered == request.output
        self.requests = self.alive

    def finish(self) -> None:
        """Every admitted request finishes, with all its tokens."""
        for request in self.requests:
            request.ready = True
        limit = 50 + 4 * sum(r.prompt + r.output for r in self.alive)
        while self.engine.busy:
            self.step()
            limit -= 1
            assert limit, f"still unfinished: {self.alive}"
        self.forget()
        assert not self.requests
        assert len(self.engine.rows) == 0


sizes = st.builds(
    lambda lanes, per_lane, blocks, budget, chunked: EngineSize(
        rows=lanes * per_lane,
        kv_tokens=lanes * blocks * 16,
        block=16,
        budget=budget if chunked else 512,
        chunked=chunked,
        lanes=lanes,
    ),
    lanes=st.integers(1, 8),
    per_lane=st.integers(1, 4),
    blocks=st.integers(8, 24),
    budget=st.sampled_from([16, 32, 100, 512]),
    chunked=st.booleans(),
)
options = st.one_of(
    st.just(InterleaveOptions(decode_interleave_enabled=False)),
    st.builds(
        InterleaveOptions,
        decode_interleave_prefill_steps=st.integers(1, 3),
        decode_interleave_decode_steps=st.integers(1, 3),
        decode_interleave_target_itl_ms=st.sampled_from([None, None, 1.0, 20.0, 60.0]),
    ),
)


class EngineMachine(RuleBasedStateMachine):
    @initialize(size=sizes, options=options)
    def start(self, size: EngineSize, options: InterleaveOptions) -> None:
        self.checked = Checked(size, options)

    @rule(prompt=st.integers(1, 90), output=st.integers(1, 30), ready=st.booleans())
    def arrive(self, prompt: int, output: int, ready: bool) -> None:
        self.checked.add(prompt, output, ready)

    @precondition(lambda self: self.checked.alive)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.checked.abort(data.draw(st.sampled_from(self.checked.alive)))

    @rule()
    def grammars_are_ready(self) -> None:
        for request in self.checked.requests:
            request.ready = True

    @rule(steps=st.integers(1, 300))
    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self.checked.step()

    @invariant()
    def the_kv_cache_adds_up(self) -> None:
        if hasattr(self, "checked"):
            assert 0 <= self.checked.engine.kv_used <= 1

    def teardown(self) -> None:
        if hasattr(self, "checked"):
            self.checked.finish()


EngineMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestEngineMachine = EngineMachine.TestCase


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("target", [None, 25.0])
def test_ten_thousand_steps_of_a_busy_engine(lanes: int, target: float | None) -> None:
    draw = random.Random(lanes)
    size = EngineSize(rows=4 * lanes, kv_tokens=16 * 20 * lanes, block=16, budget=48, lanes=lanes)
    checked = Checked(size, InterleaveOptions(decode_interleave_target_itl_ms=target))
    while checked.steps < 10_000:
        if draw.random() < 0.05 * lanes and len(checked.alive) < 12 * lanes:
            checked.add(draw.randint(1, 200), draw.randint(1, 60), draw.random() < 0.9)
        if checked.alive and draw.random() < 0.004:
            checked.abort(draw.choice(checked.alive))
        if draw.random() < 0.05:
            for request in checked.alive:
                request.ready = True
        checked.step()
        checked.forget()
    assert checked.arrivals > 100
    checked.finish()


def test_the_engine_refuses_what_it_can_never_serve() -> None:
    """The livelock of a prompt longer than the budget with chunking off (#5), and of one longer than the KV cache."""
    whole = Engine(EngineSize(rows=2, kv_tokens=1024, block=16, budget=64, chunked=False), PhasePolicy())
    with pytest.raises(ValueError, match="budget is 64"):
        whole.add(SimRequest("long", 60, 10))
    with pytest.raises(ValueError, match="KV cache"):
        whole.add(SimRequest("longer", 2000, 10))
    with pytest.raises(ValueError, match="divided"):
        EngineSize(rows=3, lanes=2)
