"""Page tables: exact content, no tail of a former tenant, checked before any device sees them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_worker.pages import PageTable, PageTableError, PageTables

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["replace", "append", "clear"]), st.integers(0, 2), st.lists(st.integers(0, 49), max_size=6)
    ),
    max_size=30,
)


@given(OPERATIONS)
def test_the_table_is_what_a_list_of_lists_would_be(operations: list[tuple[str, int, list[int]]]) -> None:
    """Fails when `replace` or `clear` leaves a former tenant's block ids behind (#103)."""
    table, model = PageTable(3, 6, 50), [[], [], []]
    for name, row, ids in operations:
        wanted = {"replace": ids, "append": model[row] + ids, "clear": []}[name]
        arguments = () if name == "clear" else (ids,)
        if len(wanted) > 6:
            with pytest.raises(PageTableError, match="may own 6"):
                getattr(table, name)(row, *arguments)
            continue
        getattr(table, name)(row, *arguments)
        model[row] = wanted
        expected = np.zeros((3, 6), dtype=np.int32)
        for i, blocks in enumerate(model):
            expected[i, : len(blocks)] = blocks
        assert np.array_equal(table.table, expected)


def test_a_reused_row_has_no_tail_of_its_former_page_table() -> None:
    table = PageTable(2, 4, 10)
    table.replace(0, [7, 8, 9])
    table.replace(0, [3])
    assert table.table[0].tolist() == [3, 0, 0, 0]


def test_a_block_outside_the_pool_is_refused_before_the_device_reads_it() -> None:
    table = PageTable(1, 4, 10)
    for ids in ([10], [-1], [3, 11]):
        with pytest.raises(PageTableError, match="outside the pool of 10"):
            table.replace(0, ids)


def test_a_snapshot_is_copied_only_after_a_change_and_stays_while_steps_are_in_flight() -> None:
    """The device may read a submitted table later. Fails when `snapshot` hands out the live table, or reuses memory
    that a step in flight still has."""
    table = PageTable(1, 4, 10)
    table.replace(0, [1])
    first = table.snapshot([0])
    assert table.snapshot([0]) is first
    table.append(0, [2])
    assert first[0].tolist() == [1, 0, 0, 0]
    assert table.snapshot([0])[0].tolist() == [1, 2, 0, 0]
    table.append(0, [3])
    assert table.snapshot([0])[0].tolist() == [1, 2, 3, 0]
    assert first[0].tolist() == [1, 0, 0, 0], "two steps later"


def test_a_row_that_is_skipped_in_a_step_is_padding_in_its_page_table() -> None:
    """Fails when `snapshot` copies the rows of requests that the step does not run."""
    table = PageTable(2, 2, 10)
    table.replace(0, [1])
    table.replace(1, [2])
    assert table.snapshot([1]).tolist() == [[0, 0], [2, 0]]
    assert table.snapshot([0, 1]).tolist() == [[1, 0], [2, 0]]


def test_the_version_changes_with_the_content_only() -> None:
    table = PageTable(2, 4, 10)
    before = table.version
    table.clear(1)
    table.append(0, [])
    assert table.version == before
    table.replace(0, [1])
    assert table.version != before


def test_blocks_that_left_a_sliding_window_are_forgotten_and_no_others() -> None:
    """vLLM gives them to somebody else without a word. Fails when the window's own first block is forgotten too."""
    full, sliding = PageTable(2, 4, 50), PageTable(2, 4, 50)
    tables = PageTables([full, sliding], [None, 6], block_size=4)
    tables.replace(1, [[1, 2, 3], [11, 12, 13]])
    for position, expected in ((8, [11, 12, 13]), (9, [0, 12, 13]), (12, [0, 12, 13]), (13, [0, 0, 13])):
        before = tables.versions
        tables.advance(1, position)
        assert sliding.table[1, :3].tolist() == expected, position
        assert full.table[1, :3].tolist() == [1, 2, 3]
        assert (tables.versions != before) == (position in (9, 13)), "a steady step sends no table"


def test_one_group_has_no_window_to_forget() -> None:
    table = PageTable(1, 4, 10)
    tables = PageTables([table])
    tables.replace(0, [[1, 2, 3]])
    tables.advance(0, 12)
    assert table.table[0].tolist() == [1, 2, 3, 0]


def test_blocks_of_another_number_of_groups_are_refused() -> None:
    tables = PageTables([PageTable(1, 4, 10)])
    with pytest.raises(ValueError, match="zip"):
        tables.replace(0, [[1], [2]])
