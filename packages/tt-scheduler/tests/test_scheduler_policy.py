"""Rules S1 to S5: which phase a step takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler import Demand, InterleaveOptions, Outcome, Pass, Phase, PhasePolicy

PREFILL, DECODE, EMPTY = Phase.PREFILL, Phase.DECODE, Phase.EMPTY


class Attempts:
    """An engine whose passes schedule something in the given phases."""

    def __init__(self, *fruitful: Phase, preempts: Phase | None = None) -> None:
        self.fruitful = fruitful
        self.preempts = preempts
        self.passes: list[Pass] = []

    def __call__(self, permit: Pass) -> Outcome:
        self.passes.append(permit)
        return Outcome(int(permit.phase in self.fruitful), permit.phase is self.preempts)

    @property
    def phases(self) -> list[Phase]:
        return [permit.phase for permit in self.passes]


def no_interleave() -> PhasePolicy:
    return PhasePolicy(InterleaveOptions(decode_interleave_enabled=False))


@pytest.mark.parametrize("demand", [Demand(1, 0, 5), Demand(0, 1, 5), Demand(2, 2, 0)])
def test_S1_pending_prefill_work_is_served_first(demand: Demand) -> None:
    """Fails when decide() prefers running requests without an interleave that is due."""
    assert no_interleave().decide(demand) is PREFILL


def test_S2_a_due_interleave_gives_the_step_to_whoever_can_decode() -> None:
    policy = PhasePolicy(InterleaveOptions(decode_interleave_prefill_steps=1))
    policy.step(Demand(3, 0, 1), Attempts(PREFILL, DECODE))
    assert policy.decide(Demand(3, 0, 1)) is DECODE


def test_S2_a_due_interleave_does_not_idle_when_nobody_can_decode() -> None:
    policy = PhasePolicy(InterleaveOptions(decode_interleave_prefill_steps=1))
    policy.step(Demand(3, 0, 1), Attempts(PREFILL, DECODE))
    assert policy.decide(Demand(3, 0, 0)) is PREFILL


def test_S3_a_prefill_pass_that_admits_nothing_becomes_a_decode_step() -> None:
    """The livelock of a queue that does not fit: without the retry no step ever makes progress."""
    attempts = Attempts(DECODE)
    step = no_interleave().step(Demand(1, 0, 2), attempts)
    assert step.phase is DECODE
    assert attempts.phases == [PREFILL, DECODE]


def test_S3_a_decode_pass_that_schedules_nothing_becomes_a_prefill_step() -> None:
    policy = PhasePolicy(InterleaveOptions(decode_interleave_prefill_steps=1))
    policy.step(Demand(1, 1, 1), Attempts(PREFILL))
    attempts = Attempts(PREFILL)
    assert policy.step(Demand(0, 1, 1), attempts).phase is PREFILL
    assert attempts.phases == [DECODE, PREFILL]


def test_S3_no_second_pass_without_work_in_the_other_phase() -> None:
    attempts = Attempts()
    assert no_interleave().step(Demand(2, 0, 0), attempts).phase is EMPTY
    assert attempts.phases == [PREFILL]


def test_S4_no_work_is_an_empty_step_and_still_a_pass() -> None:
    """Fails when an idle step skips the engine's pass: finished requests would never be drained."""
    attempts = Attempts()
    step = no_interleave().step(Demand(0, 0, 0), attempts)
    assert step.phase is EMPTY
    assert attempts.phases == [EMPTY]


def test_S5_the_retry_after_a_pass_that_preempted_admits_nobody() -> None:
    """The preempted request may have a token in flight; admitted again in the same step it would lose it."""
    policy = PhasePolicy(InterleaveOptions(decode_interleave_prefill_steps=1))
    policy.step(Demand(1, 1, 1), Attempts(PREFILL))
    attempts = Attempts(PREFILL, preempts=DECODE)
    policy.step(Demand(1, 1, 1), attempts)
    assert attempts.passes == [Pass(DECODE), Pass(PREFILL, max_admissions=0)]


def test_S5_an_ordinary_retry_may_admit() -> None:
    policy = PhasePolicy(InterleaveOptions(decode_interleave_prefill_steps=1))
    policy.step(Demand(1, 1, 1), Attempts(PREFILL))
    attempts = Attempts(PREFILL)
    policy.step(Demand(1, 1, 1), attempts)
    assert attempts.passes[1] == Pass(PREFILL)


counts = st.integers(0, 3)
demands = st.builds(Demand, counts, counts, counts)


@given(st.lists(st.tuples(demands, st.booleans(), st.booleans())), st.integers(1, 4), st.integers(1, 3))
def test_a_step_that_could_make_progress_makes_some(
    steps: list[tuple[Demand, bool, bool]], prefills: int, decodes: int
) -> None:
    """Whatever happened before: if a phase has work and its pass would schedule something, the step is not empty."""
    policy = PhasePolicy(
        InterleaveOptions(decode_interleave_prefill_steps=prefills, decode_interleave_decode_steps=decodes)
    )
    for demand, prefill_fits, decode_fits in steps:
        fruitful = [phase for phase, fits in ((PREFILL, prefill_fits), (DECODE, decode_fits)) if fits]
        step = policy.step(demand, Attempts(*fruitful))
        possible = (demand.prefillable and prefill_fits) or (demand.decodable and decode_fits)
        assert (step.phase is not EMPTY) == bool(possible)
        assert step.phase is not PREFILL or demand.prefillable
        assert step.phase is not DECODE or demand.decodable


def test_a_demand_counts() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        Demand(0, -1, 0)
    assert Demand(1, 2, 3) + Demand(4, 5, 6) == Demand(5, 7, 9)
    assert Demand(0, 0, 0).idle
    assert not Demand(1, 0, 0).idle


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"max_admissions": -1}])
def test_a_pass_refuses_limits_that_cannot_be_kept(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="pass"):
        Pass(PREFILL, **wrong)
