"""Rules T1 to T6: the latency target, the estimate behind it and the clock behind that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler import Chunking, Demand, InterleaveOptions, Outcome, Pass, Phase, PhasePolicy, Step
from tt_scheduler.clock import StepClock
from tt_scheduler.estimate import StepTimes
from tt_scheduler.target import PLANNED, LatencyTarget

BUSY = Demand(waiting=3, chunks=1, decodable=8)
FLOOR_MS, MS_PER_TOKEN, DECODE_MS = 20.0, 0.25, 25.0


def device_ms(step: Step) -> float:
    return FLOOR_MS + MS_PER_TOKEN * step.tokens if step.phase is Phase.PREFILL else DECODE_MS


def taught(target_ms: float, chunked: bool = True, decode_steps: int = 1) -> PhasePolicy:
    """A policy that has seen enough steps of the device above."""
    policy = PhasePolicy(
        InterleaveOptions(decode_interleave_target_itl_ms=target_ms, decode_interleave_decode_steps=decode_steps),
        Chunking(chunked, quantum=16),
    )
    for tokens in (64, 256, 512, 1024):
        policy.observe(Step(Phase.PREFILL, tokens), FLOOR_MS + MS_PER_TOKEN * tokens)
    policy.observe(Step(Phase.DECODE, 8), DECODE_MS)
    return policy


def run(policy: PhasePolicy, demand: Demand, steps: int, prompt: int = 10_000) -> list[Step]:
    """Steps of an engine that always has that much prompt left, each measured before the next."""

    def attempt(permit: Pass) -> Outcome:
        return Outcome(min(permit.max_tokens or prompt, prompt) if permit.phase is Phase.PREFILL else demand.decodable)

    ran: list[Step] = []
    for _ in range(steps):
        step = policy.step(demand, attempt)
        policy.observe(step, device_ms(step))
        ran.append(step)
    return ran


def gaps_ms(steps: list[Step]) -> list[float]:
    """Time from one decode step's end to the next one's."""
    gaps: list[float] = []
    gap = 0.0
    for step in steps:
        gap += device_ms(step)
        if step.phase is Phase.DECODE:
            gaps.append(gap)
            gap = 0.0
    return gaps


@pytest.mark.parametrize("target_ms", [80, 100, 150, 200, 400])
def test_T1_the_gap_between_two_decode_steps_stays_under_the_target(target_ms: float) -> None:
    gaps = gaps_ms(run(taught(target_ms), BUSY, 60))
    assert max(gaps) <= target_ms
    # Half of the room unused would be as wrong as too much of it used.
    assert max(gaps) > 0.85 * target_ms


def test_T1_short_prompts_share_the_room_of_one_gap() -> None:
    """Prompts of 100 tokens: several prefill steps fit before the decode step is due."""
    steps = run(taught(200), BUSY, 40, prompt=100)
    runs = "".join("P" if step.phase is Phase.PREFILL else "D" for step in steps).split("D")
    assert max(map(len, runs)) == 3
    assert max(gaps_ms(steps)) <= 200


def test_T2_without_an_estimate_the_fixed_ratio_holds() -> None:
    policy = PhasePolicy(InterleaveOptions(decode_interleave_target_itl_ms=100), Chunking(True))
    ran = [policy.step(BUSY, lambda permit: Outcome(8)).phase for _ in range(6)]
    assert [phase.value[0] for phase in ran] == list("ppdppd")


@pytest.mark.parametrize("target_ms", [1, 30, 60])
def test_T3_prefill_waits_for_one_insertion_at_most(target_ms: float) -> None:
    """Whatever the target: after a decode step a prefill step may follow, or prompts would starve."""
    policy = taught(target_ms)
    phases = "".join(step.phase.value[0] for step in run(policy, BUSY, 20))
    assert "dd" not in phases
    assert policy.target is not None
    assert not policy.target.feasible


def test_T3_a_chunk_is_never_shorter_than_is_worth_a_step() -> None:
    """20 ms of floor are 80 tokens of 0.25 ms: below that a step mostly pays for itself."""
    steps = run(taught(1), BUSY, 10)
    assert {step.tokens for step in steps if step.phase is Phase.PREFILL} == {80}


def test_T3_an_insertion_may_have_several_decode_steps() -> None:
    phases = "".join(step.phase.value[0] for step in run(taught(100, decode_steps=3), BUSY, 12))
    assert phases == "pdddpdddpddd"


def test_T4_nobody_waiting_means_no_limit() -> None:
    policy = taught(100)
    assert policy.permit(Demand(3, 0, 0), Phase.PREFILL) == Pass(Phase.PREFILL)


def test_T5_whole_prompts_are_admitted_one_at_a_time() -> None:
    policy = taught(100, chunked=False)
    permit = policy.permit(BUSY, Phase.PREFILL)
    assert permit == Pass(Phase.PREFILL, max_admissions=1, shortest_first=True)


def test_T6_a_limited_pass_admits_the_shortest_first() -> None:
    permit = taught(100).permit(BUSY, Phase.PREFILL)
    assert permit.shortest_first
    assert permit.max_tokens is not None
    assert permit.max_tokens % 16 == 0


def test_steps_in_flight_count_with_their_forecast() -> None:
    """An engine that overlaps decides before it knows how long the last step took."""
    policy = taught(150)
    assert policy.target is not None
    step = policy.step(BUSY, lambda permit: Outcome(permit.max_tokens or 1))
    assert policy.target.waited_ms == pytest.approx(device_ms(step), rel=0.01)
    assert policy.target.due


def test_the_plan_keeps_a_margin() -> None:
    assert 0.9 < PLANNED < 1


@given(st.floats(1, 100), st.floats(0.05, 1), st.lists(st.integers(32, 4096), min_size=8, max_size=40, unique=True))
def test_the_estimate_finds_the_line(floor: float, slope: float, sizes: list[int]) -> None:
    times = StepTimes()
    for tokens in sizes:
        times.observe(Step(Phase.PREFILL, tokens), floor + slope * tokens)
    spread = max(sizes) - min(sizes)
    if spread > max(sizes) / 2:
        assert times.prefill_ms(1000) == pytest.approx(floor + slope * 1000, rel=0.3)


def test_equal_chunks_move_the_line_without_turning_it() -> None:
    times = StepTimes()
    for tokens in (100, 1000, 100, 1000):
        times.observe(Step(Phase.PREFILL, tokens), 20 + 0.25 * tokens)
    for _ in range(200):
        times.observe(Step(Phase.PREFILL, 400), 130.0)
    assert times.prefill_ms(400) == pytest.approx(130, rel=0.02)
    assert times.ms_per_token == pytest.approx(0.25, rel=0.1)


def test_one_compilation_does_not_throttle_prompts_for_long() -> None:
    """A first step of a new shape takes seconds. It is believed up to three times the forecast."""
    times = StepTimes()
    for tokens in (64, 256, 512):
        times.observe(Step(Phase.PREFILL, tokens), 20 + 0.25 * tokens)
    times.observe(Step(Phase.PREFILL, 300), 30_000.0)
    assert times.prefill_ms(300) < 250


def test_a_longer_decode_step_is_believed_at_once_and_a_shorter_one_slowly() -> None:
    times = StepTimes()
    times.observe(Step(Phase.DECODE, 1), 20.0)
    times.observe(Step(Phase.DECODE, 1), 30.0)
    assert times.decode_ms == 30
    times.observe(Step(Phase.DECODE, 1), 20.0)
    assert 20 < times.decode_ms < 30


def test_nothing_is_learned_from_an_empty_step_or_no_time() -> None:
    times = StepTimes()
    times.observe(Step(Phase.EMPTY, 0), 5.0)
    times.observe(Step(Phase.DECODE, 1), 0.0)
    assert not times.ready
    assert times.expect(Phase.DECODE, 1) == 0


def test_tokens_within_a_time() -> None:
    times = StepTimes()
    for tokens in (100, 200, 400):
        times.observe(Step(Phase.PREFILL, tokens), 20 + 0.5 * tokens)
    assert times.tokens_within(10) == 0
    assert times.tokens_within(120) == pytest.approx(200, abs=2)


def test_a_flat_line_is_not_believed_beyond_what_was_measured() -> None:
    """Short prompts that are padded to one length show no cost per token; a long chunk would still cost seconds."""
    times = StepTimes()
    for tokens in (20, 60, 120):
        times.observe(Step(Phase.PREFILL, tokens), 30.0)
    assert times.tokens_within(1000) == 240


def test_the_clock_starts_a_step_when_the_one_before_it_ends() -> None:
    """Depth two: the second step is scheduled at 1.5 s and runs from 2 s on."""
    clock = StepClock()
    first, second = Step(Phase.DECODE, 1), Step(Phase.PREFILL, 9)
    clock.start("a", first, 1.0)
    clock.start("b", second, 1.5)
    assert clock.end("a", 2.0) == (first, pytest.approx(1000))
    assert clock.end("b", 2.25) == (second, pytest.approx(250))


def test_the_clock_does_not_count_idle_time() -> None:
    clock = StepClock()
    step = Step(Phase.DECODE, 1)
    clock.start("a", step, 1.0)
    clock.end("a", 1.1)
    clock.start("b", step, 60.0)
    assert clock.end("b", 60.02) == (step, pytest.approx(20))


def test_the_clock_ignores_what_it_did_not_start() -> None:
    clock = StepClock()
    clock.start("a", Step(Phase.DECODE, 1), 1.0)
    assert clock.end("b", 2.0) is None
    assert clock.end("a", 3.0) is not None


def test_a_chunk_needs_a_quantum() -> None:
    with pytest.raises(ValueError, match="quantum"):
        Chunking(True, 0)


def test_the_rate_that_a_target_leaves_to_prompts() -> None:
    """150 ms: 147 ms - 25 ms decode - 20 ms floor are 408 tokens in each 147 ms."""
    target = taught(150).target
    assert target is not None
    assert target.prompt_rate == pytest.approx(408 / 0.147, rel=0.02)
    steps = run(taught(150), BUSY, 200)
    seconds = sum(map(device_ms, steps)) / 1e3
    assert sum(s.tokens for s in steps if s.phase is Phase.PREFILL) / seconds == pytest.approx(408 / 0.147, rel=0.05)


def test_a_target_that_fits_is_feasible() -> None:
    target = taught(500).target
    assert isinstance(target, LatencyTarget)
    assert target.feasible
