"""Rules L1, L2, S5, R1, R2 and A1: lanes, rows, and the order of admission."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler import (
    Demand,
    LaneLoad,
    LaneRows,
    NoFreeRow,
    Pass,
    Phase,
    WaitingPrompt,
    admission_order,
    lane_permits,
    least_loaded,
)


def test_L1_a_request_goes_to_the_least_loaded_lane_and_a_waiting_one_weighs_four() -> None:
    assert least_loaded([LaneLoad(1, 0), LaneLoad(0, 3), LaneLoad(0, 4)]) == 1
    assert least_loaded([LaneLoad(0, 5), LaneLoad(1, 0)]) == 1


def test_L1_ties_go_to_the_lowest_lane() -> None:
    assert least_loaded([LaneLoad(1, 0), LaneLoad(0, 4), LaneLoad(1, 0)]) == 0


def test_L1_no_lane_is_an_error() -> None:
    with pytest.raises(ValueError, match="no lane"):
        least_loaded([])


@given(st.integers(1, 8), st.integers(1, 100))
def test_L1_equal_requests_spread_evenly(lanes: int, requests: int) -> None:
    waiting = [0] * lanes
    for _ in range(requests):
        waiting[least_loaded([LaneLoad(count, 0) for count in waiting])] += 1
    assert max(waiting) - min(waiting) <= 1


def test_L2_a_limit_is_divided_among_the_lanes_with_prefill_work() -> None:
    demands = [Demand(1, 0, 0), Demand(0, 0, 5), Demand(0, 2, 1)]
    permits = lane_permits(Pass(Phase.PREFILL, max_tokens=512), demands, [False] * 3, quantum=64)
    assert [permit.max_tokens for permit in permits] == [256] * 3


def test_L2_every_lane_gets_one_quantum_at_least() -> None:
    demands = [Demand(1, 0, 0)] * 8
    permits = lane_permits(Pass(Phase.PREFILL, max_tokens=100), demands, [False] * 8, quantum=64)
    assert [permit.max_tokens for permit in permits] == [64] * 8


def test_L2_one_lane_with_work_gets_all_of_it() -> None:
    permits = lane_permits(Pass(Phase.PREFILL, max_tokens=100), [Demand(1, 0, 0), Demand(0, 0, 1)], [False] * 2, 64)
    assert permits[0].max_tokens == 100


def test_S5_only_the_lane_that_preempted_is_closed() -> None:
    permits = lane_permits(Pass(Phase.PREFILL), [Demand(1, 1, 1)] * 2, [True, False], quantum=64)
    assert [permit.max_admissions for permit in permits] == [0, None]


def test_R1_the_lowest_free_slot_of_the_lane_is_given_out() -> None:
    rows = LaneRows(lanes=4, per_lane=8)
    assert [rows.assign(name, 2) for name in "abc"] == [16, 17, 18]
    assert rows.release("b") == 17
    assert rows.assign("d", 2) == 17
    assert rows.assign("e", 0) == 0
    assert rows["d"] == 17
    assert len(rows) == 4


def test_R1_a_full_lane_says_so() -> None:
    rows = LaneRows(2, 1)
    rows.assign("a", 1)
    with pytest.raises(NoFreeRow, match="lane 1 has no free slot"):
        rows.assign("b", 1)


def test_R2_a_request_owns_one_row() -> None:
    rows = LaneRows(1, 2)
    rows.assign("a", 0)
    with pytest.raises(ValueError, match="already owns row 0"):
        rows.assign("a", 0)


@pytest.mark.parametrize("size", [(0, 1), (1, 0)])
def test_rows_need_a_size(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LaneRows(*size)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3))))
def test_R2_a_row_has_one_owner(moves: list[tuple[int, int]]) -> None:
    rows = LaneRows(4, 3)
    owners: dict[int, str] = {}
    for number, lane in moves:
        name = f"r{number}"
        if name in rows:
            assert owners.pop(rows.release(name)) == name
        elif sum(row // 3 == lane for row in owners) < 3:
            row = rows.assign(name, lane)
            assert row // 3 == lane
            assert row not in owners
            owners[row] = name


def test_A1_the_shortest_prompt_is_admitted_first() -> None:
    waiting = [WaitingPrompt(4000, 0.5), WaitingPrompt(100, 0.1), WaitingPrompt(900, 0.3)]
    assert admission_order(waiting) == [1, 2, 0]


def test_A1_whoever_waited_past_patience_goes_before_shorter_ones() -> None:
    """Without it a long prompt starves under a stream of short ones."""
    waiting = [WaitingPrompt(4000, 4.5), WaitingPrompt(100, 0.1), WaitingPrompt(8000, 6.0)]
    assert admission_order(waiting) == [2, 0, 1]


def test_A1_a_resumed_request_goes_before_all() -> None:
    waiting = [WaitingPrompt(10, 9.0), WaitingPrompt(5000, 0.1, resumed=True)]
    assert admission_order(waiting) == [1, 0]


@given(st.lists(st.builds(WaitingPrompt, st.integers(1, 100), st.floats(0, 10), st.booleans())))
def test_A1_the_order_keeps_everybody(waiting: list[WaitingPrompt]) -> None:
    assert sorted(admission_order(waiting)) == list(range(len(waiting)))
