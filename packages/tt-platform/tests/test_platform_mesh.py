"""MESH_DEVICE, TT_VISIBLE_DEVICES and the grid that is opened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_platform.mesh import (
    DISCOVERY_GALAXY,
    MESH_NAMES,
    MeshError,
    choose_grid,
    mesh_problem,
    parse_mesh,
    parse_visible_devices,
)

TABLE = {
    "N150": (1, 1),
    "P100": (1, 1),
    "P150": (1, 1),
    "N300": (1, 2),
    "P300": (1, 2),
    "P150x2": (1, 2),
    "N150x4": (1, 4),
    "P150x4": (1, 4),
    "P300x2": (1, 4),
    "T3K": (1, 8),
    "P150x8": (1, 8),
    "TG": (8, 4),
    "BH-Galaxy": (8, 4),
}


def test_the_table_of_names_is_complete():
    assert {name: parse_mesh(name) for name in MESH_NAMES} == TABLE


@pytest.mark.parametrize("name", ["TG", "BH-Galaxy"])
def test_the_galaxy_grid_is_a_parameter(name):
    assert parse_mesh(name, galaxy=DISCOVERY_GALAXY) == (4, 8)


@pytest.mark.parametrize(
    ("text", "grid"), [("(4, 8)", (4, 8)), ("(1,4)", (1, 4)), ("[8,8]", (8, 8)), (" ( 8 , 16 ) ", (8, 16))]
)
def test_a_literal_shape_is_taken(text, grid):
    assert parse_mesh(text) == grid


@pytest.mark.parametrize(
    "text",
    [
        "n150",
        "T3k",
        "",
        "(1)",
        "(1,2,3)",
        "(0,4)",
        "(-1,4)",
        "(1.0,4)",
        "(True,4)",
        "1,4",
        "((1,4),)",
        "(" * 200,
        "(1,",
    ],
)
def test_a_wrong_mesh_lists_the_names(text):
    with pytest.raises(MeshError, match=r"N150.*BH-Galaxy"):
        parse_mesh(text)


@given(st.text())
def test_parsing_a_mesh_is_total(text):
    try:
        rows, columns = parse_mesh(text)
    except MeshError:
        return
    assert rows >= 1
    assert columns >= 1


@given(st.integers(1, 999), st.integers(1, 999))
def test_every_literal_shape_is_read_back(rows, columns):
    assert parse_mesh(f"({rows}, {columns})") == (rows, columns)


def test_without_a_mesh_all_chips_are_opened_in_one_row():
    assert choose_grid({}, 8) == (1, 8)


def test_a_mesh_smaller_than_the_machine_is_opened_as_named():
    assert choose_grid({"MESH_DEVICE": "N300"}, 8) == (1, 2)


def test_narrowed_visible_devices_win_over_an_inherited_mesh():
    assert choose_grid({"MESH_DEVICE": "TG", "TT_VISIBLE_DEVICES": "0,1,2,3"}, 4) == (1, 4)


def test_a_mesh_that_fits_the_visible_devices_is_kept():
    assert choose_grid({"MESH_DEVICE": "(2,2)", "TT_VISIBLE_DEVICES": "0,1,2,3"}, 4) == (2, 2)


def test_a_mesh_larger_than_the_machine_is_an_error_with_both_numbers():
    with pytest.raises(MeshError, match=r"MESH_DEVICE='TG' needs 32 chips, but this machine has 8"):
        choose_grid({"MESH_DEVICE": "TG"}, 8)


def test_a_distributed_mesh_may_be_larger_than_the_host():
    assert choose_grid({"MESH_DEVICE": "(8,16)"}, 32, distributed=True) == (8, 16)


def test_no_chip_is_an_error_that_says_what_to_do():
    with pytest.raises(MeshError, match=r"TT_VISIBLE_DEVICES=7 hides them.*TT_RUNTIME=host"):
        choose_grid({"TT_VISIBLE_DEVICES": "7"}, 0)


@pytest.mark.parametrize(("text", "ids"), [("", None), ("  ", None), ("0", (0,)), ("4, 0,2", (4, 0, 2))])
def test_visible_devices_are_read(text, ids):
    assert parse_visible_devices(text) == ids


@pytest.mark.parametrize("text", ["0,", "a", "0,-1", "0;1", "1.0", "0,0", "٣", "9" * 5000])
def test_wrong_visible_devices_are_an_error_that_names_the_variable(text):
    with pytest.raises(MeshError, match="TT_VISIBLE_DEVICES"):
        parse_visible_devices(text)


@given(st.text())
def test_parsing_visible_devices_is_total(text):
    try:
        ids = parse_visible_devices(text)
    except MeshError:
        return
    assert ids is None or len(set(ids)) == len(ids)


@given(st.lists(st.integers(0, 10**6), unique=True, min_size=1))
def test_every_list_of_chips_is_read_back(ids):
    assert parse_visible_devices(",".join(map(str, ids))) == tuple(ids)


def test_the_environment_is_judged_without_looking_at_a_device():
    assert mesh_problem({}) is None
    assert mesh_problem({"MESH_DEVICE": "T3K", "TT_VISIBLE_DEVICES": "0"}) is None
    assert "N150" in (mesh_problem({"MESH_DEVICE": "X"}) or "")
    assert "TT_VISIBLE_DEVICES" in (mesh_problem({"TT_VISIBLE_DEVICES": "X"}) or "")
