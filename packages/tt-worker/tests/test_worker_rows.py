"""Rows: one owner each, kept until released, lanes as ranges."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tt_worker.rows import RowError, RowTable


def test_the_lowest_free_row_of_the_lane_is_given_out() -> None:
    """Fails when a release appends to the free list without keeping it ordered."""
    rows = RowTable(8, lanes=2)
    assert [rows.assign(f"a{i}", 1) for i in range(3)] == [4, 5, 6]
    rows.release("a0")
    rows.release("a1")
    assert rows.assign("b", 1) == 4
    assert rows.assign("c", 0) == 0


def test_a_full_lane_is_an_error_that_names_the_lane() -> None:
    rows = RowTable(2, lanes=2)
    rows.assign("a", 1)
    with pytest.raises(RowError, match="lane 1 has no free slot for request 'b': it holds 1"):
        rows.assign("b", 1)


@pytest.mark.parametrize(("capacity", "lanes"), [(0, 1), (4, 0), (5, 2)])
def test_rows_that_cannot_be_divided_are_refused(capacity: int, lanes: int) -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        RowTable(capacity, lanes)


class RowMachine(RuleBasedStateMachine):
    """A row has one owner, an owner has one row in its lane, and nothing moves."""

    @initialize(lanes=st.integers(1, 4), per_lane=st.integers(1, 4))
    def start(self, lanes: int, per_lane: int) -> None:
        self.table = RowTable(lanes * per_lane, lanes)
        self.expected: dict[str, int] = {}
        self.lane: dict[str, int] = {}
        self.count = 0

    @rule(data=st.data())
    def assign(self, data: st.DataObject) -> None:
        lane = data.draw(st.integers(0, self.table.lanes - 1))
        self.count += 1
        name = f"r{self.count}"
        held = [row for other, row in self.expected.items() if self.lane[other] == lane]
        if len(held) == self.table.per_lane:
            with pytest.raises(RowError):
                self.table.assign(name, lane)
            return
        self.expected[name] = self.table.assign(name, lane)
        self.lane[name] = lane

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected)))
        assert self.table.release(name) == self.expected.pop(name)
        with pytest.raises(RowError):
            self.table.row_of(name)

    @invariant()
    def rows_are_stable_and_unique(self) -> None:
        if not hasattr(self, "expected"):
            return
        assert {name: self.table.row_of(name) for name in self.expected} == self.expected
        assert len(set(self.expected.values())) == len(self.expected) == len(self.table)
        for name, row in self.expected.items():
            assert row // self.table.per_lane == self.lane[name]


TestRows = RowMachine.TestCase
