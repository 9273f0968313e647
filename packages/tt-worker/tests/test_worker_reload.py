"""The reload plan of decode contract v1, against its rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_worker.reload import DecodeSituation, ReloadPlan, ReloadPlanner

SITUATIONS = st.builds(DecodeSituation, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.booleans())
EVENTS = st.lists(st.one_of(st.none(), st.tuples(SITUATIONS, st.booleans())), max_size=30)


@given(EVENTS, st.booleans())
def test_the_plan_follows_the_rules(events: list, resident: bool) -> None:
    """None is a prefill; (situation, accepted) is a decode call that the model took or refused.

    Fails when the plan is compared with a submission that the model refused (state must be committed after acceptance).
    """
    planner = ReloadPlanner(resident_inputs=resident)
    held: DecodeSituation | None = None
    for event in events:
        if event is None:
            planner.prefilled()
            held = None
            continue
        now, accepted = event
        plan = planner.plan(now)
        transition = held is None or (held.layout, held.on_device) != (now.layout, now.on_device)
        transition |= held is not None and now.on_device and held.sampling != now.sampling
        assert plan.reload_inputs == (transition or not now.on_device or not resident)
        assert plan.reload_page_table == (not plan.reload_inputs and held is not None and held.pages != now.pages)
        assert plan.reload_sampling_params == plan.reset_sampling_state == (now.on_device and transition)
        if accepted:
            planner.accept(now)
            held = now


def test_a_steady_step_reloads_nothing() -> None:
    planner = ReloadPlanner(resident_inputs=True)
    now = DecodeSituation(layout=1, pages=1, sampling=1, on_device=True)
    planner.accept(now)
    assert planner.plan(now) == ReloadPlan(False, False, False, False)


def test_a_new_block_reloads_the_page_table_only() -> None:
    planner = ReloadPlanner(resident_inputs=True)
    planner.accept(DecodeSituation(layout=1, pages=1, sampling=1, on_device=True))
    plan = planner.plan(DecodeSituation(layout=1, pages=2, sampling=1, on_device=True))
    assert plan == ReloadPlan(False, True, False, False)


@pytest.mark.parametrize("flags", [(True, True, False, False), (False, False, False, True)])
def test_a_plan_that_contradicts_itself_cannot_be_built(flags: tuple[bool, bool, bool, bool]) -> None:
    with pytest.raises(ValueError, match="reload_inputs"):
        ReloadPlan(*flags)
