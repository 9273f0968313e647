"""Lanes, groups of chips, and the binding of a rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_platform.data_parallel import (
    DataParallelError,
    DeviceGroup,
    check_device_ids,
    check_groups,
    fold_lanes,
    order_groups,
    split_lanes,
    visible_devices_of_rank,
)

GROUPS = ("0,1", "2,3")


def rows(count: int, width: int = 8) -> list[DeviceGroup]:
    return [DeviceGroup(tuple(range(r * width, (r + 1) * width)), (1, width)) for r in range(count)]


@given(st.integers(1, 64), st.integers(1, 64))
def test_folding_and_splitting_are_inverse(lanes, seqs):
    fold = fold_lanes(lanes, seqs)
    assert fold.total_seqs == lanes * seqs
    assert split_lanes(lanes, fold.total_seqs) == fold


@pytest.mark.parametrize(("lanes", "total"), [(4, 30), (4, 3), (0, 8), (4, 0)])
def test_lanes_that_do_not_come_out_even_are_refused(lanes, total):
    with pytest.raises(DataParallelError, match="max_num_seqs"):
        split_lanes(lanes, total)


@pytest.mark.parametrize(("lanes", "seqs"), [(0, 1), (4, 0)])
def test_a_fold_needs_a_lane_and_a_sequence(lanes, seqs):
    with pytest.raises(DataParallelError, match="at least 1"):
        fold_lanes(lanes, seqs)


def test_four_ranks_on_a_wormhole_galaxy_are_reordered():
    groups = rows(4)
    assert order_groups(groups, "GALAXY", (4, 8)) == (groups[0], groups[2], groups[3], groups[1])


@pytest.mark.parametrize(
    ("cluster", "parent", "ranks"),
    [("BLACKHOLE_GALAXY", (4, 8), 4), ("GALAXY", (4, 8), 2), ("GALAXY", (8, 4), 4), ("T3K", (1, 8), 4)],
)
def test_nobody_else_is_reordered(cluster, parent, ranks):
    assert order_groups(rows(ranks), cluster, parent) == tuple(rows(ranks))


def test_groups_must_match_the_ranks_and_be_disjoint():
    check_groups(rows(2), 2)
    with pytest.raises(DataParallelError, match="splits into 2 groups"):
        check_groups(rows(2), 4)
    with pytest.raises(DataParallelError, match="without a chip"):
        check_groups([DeviceGroup((), (1, 1)), *rows(1)], 2)
    with pytest.raises(DataParallelError, match="same chip"):
        check_groups([*rows(1), *rows(1)], 2)


def test_a_rank_is_bound_to_its_stored_group():
    assert [visible_devices_of_rank(GROUPS, rank, None, {}) for rank in (0, 1)] == list(GROUPS)


def test_the_stored_group_wins_over_what_the_rank_inherited():
    assert visible_devices_of_rank(GROUPS, 1, None, {"TT_VISIBLE_DEVICES": "0,1,2,3"}) == "2,3"


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_beyond_the_groups_is_refused(rank):
    with pytest.raises(DataParallelError, match=f"rank {rank} has no chips"):
        visible_devices_of_rank(GROUPS, rank, None, {})


def test_without_groups_device_ids_choose_the_chips():
    assert visible_devices_of_rank((), 0, [2, 3], {}) == "2,3"
    assert visible_devices_of_rank((), 0, [2], {"TT_VISIBLE_DEVICES": "1, 2"}) == "2"


def test_without_groups_and_device_ids_the_environment_is_left_alone():
    assert visible_devices_of_rank((), 0, None, {"TT_VISIBLE_DEVICES": "5"}) is None


def test_device_ids_outside_of_the_visible_devices_are_refused():
    with pytest.raises(DataParallelError, match="--device-ids 3 is outside of TT_VISIBLE_DEVICES=0,1"):
        visible_devices_of_rank((), 0, [3], {"TT_VISIBLE_DEVICES": "0,1"})


def test_device_ids_may_only_repeat_the_groups():
    check_device_ids(GROUPS, None)
    check_device_ids(GROUPS, [0, 1, 2, 3])
    with pytest.raises(DataParallelError, match="--device-ids 0,2,1,3 is not supported"):
        check_device_ids(GROUPS, [0, 2, 1, 3])
