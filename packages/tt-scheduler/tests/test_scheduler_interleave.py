"""Rules I1 to I5: the decode interleave and its options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler import Demand, InterleaveOptions, Outcome, Phase, PhasePolicy

BUSY = Demand(waiting=9, chunks=1, decodable=4)


def phases(policy: PhasePolicy, demand: Demand, steps: int) -> str:
    """What runs under a constant demand when every pass schedules something: P and D."""
    return "".join(
        "P" if policy.step(demand, lambda permit: Outcome(1)).phase is Phase.PREFILL else "D" for _ in range(steps)
    )


def options(prefill_steps: int, decode_steps: int = 1) -> InterleaveOptions:
    return InterleaveOptions(decode_interleave_prefill_steps=prefill_steps, decode_interleave_decode_steps=decode_steps)


@pytest.mark.parametrize(
    ("prefill_steps", "decode_steps", "expected"),
    [(2, 1, "PPDPPDPPD"), (1, 1, "PDPDPDPDP"), (3, 1, "PPPDPPPDP"), (2, 2, "PPDDPPDDP"), (1, 3, "PDDDPDDDP")],
)
def test_I1_the_insertion_comes_on_time_and_has_its_length(
    prefill_steps: int, decode_steps: int, expected: str
) -> None:
    """The first release of the reference plugin came one step late: PPPD where PPD was asked for."""
    assert phases(PhasePolicy(options(prefill_steps, decode_steps)), BUSY, 9) == expected


def test_I1_two_to_one_is_the_default() -> None:
    assert phases(PhasePolicy(), BUSY, 6) == "PPDPPD"


def test_I2_prefill_that_keeps_nobody_waiting_costs_no_allowance() -> None:
    policy = PhasePolicy(options(2))
    assert phases(policy, Demand(9, 1, 0), 5) == "PPPPP"
    assert phases(policy, BUSY, 3) == "PPD"


def test_I3_an_ordinary_decode_step_clears_the_count() -> None:
    policy = PhasePolicy(options(2))
    assert phases(policy, BUSY, 1) == "P"
    assert phases(policy, Demand(0, 0, 4), 1) == "D"
    assert phases(policy, BUSY, 3) == "PPD"


def test_I3_a_fallback_decode_counts_as_the_insertion() -> None:
    """A prefill pass that admits nothing runs decode instead; the requests got their turn."""
    policy = PhasePolicy(options(2))
    assert phases(policy, BUSY, 1) == "P"
    step = policy.step(BUSY, lambda permit: Outcome(int(permit.phase is Phase.DECODE)))
    assert step.phase is Phase.DECODE
    assert phases(policy, BUSY, 3) == "PPD"


def test_I4_it_never_forces_a_prefill() -> None:
    policy = PhasePolicy(options(1, 1))
    assert phases(policy, Demand(0, 0, 4), 6) == "DDDDDD"


def test_I4_an_insertion_ends_when_no_prefill_is_pending() -> None:
    policy = PhasePolicy(options(1, 5))
    assert phases(policy, BUSY, 2) == "PD"
    assert phases(policy, Demand(0, 0, 4), 1) == "D"
    assert phases(policy, BUSY, 1) == "P"


def test_I5_disabled_means_prefill_always_goes_first() -> None:
    policy = PhasePolicy(InterleaveOptions(decode_interleave_enabled=False))
    assert phases(policy, BUSY, 20) == "P" * 20


demands = st.builds(Demand, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(st.tuples(demands, st.booleans()), max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_the_bound_holds_for_any_history(steps: list[tuple[Demand, bool]], prefills: int, decodes: int) -> None:
    """Between two steps in which running requests advance, at most `prefills` prefill steps keep them waiting."""
    policy = PhasePolicy(options(prefills, decodes))
    run = 0
    for demand, admits in steps:
        step = policy.step(demand, lambda permit, admits=admits: Outcome(int(permit.phase is Phase.DECODE or admits)))
        run = run + 1 if step.phase is Phase.PREFILL and demand.decodable else 0
        assert run <= prefills


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("decode_interleave_enabled", 1),
        ("decode_interleave_enabled", "true"),
        ("decode_interleave_prefill_steps", 0),
        ("decode_interleave_prefill_steps", True),
        ("decode_interleave_prefill_steps", 2.0),
        ("decode_interleave_decode_steps", -1),
        ("decode_interleave_decode_steps", None),
        ("decode_interleave_target_itl_ms", 0),
        ("decode_interleave_target_itl_ms", -5),
        ("decode_interleave_target_itl_ms", True),
        ("decode_interleave_target_itl_ms", "150"),
        ("decode_interleave_target_itl_ms", float("inf")),
        ("decode_interleave_target_itl_ms", float("nan")),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_value(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f'"{key}".*is .*allowed is'):
        InterleaveOptions.from_mapping({key: value})


def test_a_target_needs_the_interleave() -> None:
    with pytest.raises(ValueError, match="decode_interleave_enabled"):
        InterleaveOptions(decode_interleave_enabled=False, decode_interleave_target_itl_ms=100)


def test_other_keys_of_the_mapping_are_left_alone() -> None:
    assert InterleaveOptions.from_mapping({"trace_mode": "all"}) == InterleaveOptions()
