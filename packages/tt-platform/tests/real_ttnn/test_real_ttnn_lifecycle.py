"""Meshes of the real ttnn, opened and closed. No kernel runs; shapes, names, orders and errors are real."""

from __future__ import annotations

import pytest

pytest.importorskip("ttnn")

SERVE = """
import os
from tt_platform.lifecycle import DeviceSession
from tt_platform.options import TTOptions
from tt_platform.runtime import TtnnRuntime
runtime = TtnnRuntime()
def session(**options):
    return DeviceSession(runtime, TTOptions.parse(options))
"""
OPEN = (
    SERVE
    + """
opened = session(**OPTIONS)
mesh = opened.open()
found["shape"] = list(mesh.shape)
found["devices"] = mesh.get_num_devices()
import ttnn
runtime.event_synchronize(ttnn.record_event(mesh, 0))
runtime.set_default_device(mesh)
found["default"] = runtime.get_default_device() is not None
opened.before_close(lambda: found.setdefault("released while open", opened.is_open or mesh.get_num_devices()))
opened.close()
opened.close()
with session(**OPTIONS) as again:
    found["again"] = list(again.shape)
"""
)
NO_FABRIC = {"fabric_config": "DISABLED"}


@pytest.mark.parametrize(
    ("name", "mesh", "options", "shape"),
    [
        ("N150", "N150", {"worker_l1_size": 1344544, "l1_small_size": 768}, [1, 1]),
        ("N300", "N300", {}, [1, 2]),
        ("N300", "N150", {}, [1, 1]),
        ("T3K", "T3K", {"fabric_reliability_mode": "RELAXED_INIT"}, [1, 8]),
        ("T3K", "(2,4)", {"trace_region_size": 28467200}, [2, 4]),
        ("GALAXY", "TG", {"fabric_config": "FABRIC_1D", "dispatch_core_axis": "col"}, [8, 4]),
        ("P150", "P150", {}, [1, 1]),
        ("P150_X8", "P150x8", NO_FABRIC, [1, 8]),
        ("BLACKHOLE_GALAXY", "BH-Galaxy", {**NO_FABRIC, "trace_mode": "none"}, [8, 4]),
    ],
)
def test_a_mesh_is_opened_closed_and_can_be_opened_again(on, name, mesh, options, shape):
    found = on(name).run(f"OPTIONS = {options!r}\n{OPEN}", MESH_DEVICE=mesh)
    assert found["shape"] == found["again"] == shape
    assert found["devices"] == shape[0] * shape[1]
    assert found["default"]
    assert found["released while open"]


def test_submeshes_are_closed_before_the_mesh(on):
    program = f"""{SERVE}
import ttnn
with session() as mesh:
    found["submeshes"] = [list(s.shape) for s in mesh.create_submeshes(ttnn.MeshShape(1, 4))]
with session() as mesh:
    found["left"] = len(mesh.get_submeshes())
"""
    assert on("T3K").run(program, MESH_DEVICE="T3K") == {"submeshes": [[1, 4], [1, 4]], "left": 0}


def test_an_open_that_ttnn_refuses_leaves_nothing_behind(on):
    """Blackhole has no row dispatch. The next session opens, so the first left neither a mesh nor a fabric."""
    program = f"""{SERVE}
try:
    session(dispatch_core_axis="row").open()
except RuntimeError as error:
    found["refused"] = str(error)
with session() as mesh:
    found["then"] = list(mesh.shape)
"""
    found = on("P150").run(program)
    assert "refused" in found
    assert found["then"] == [1, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [({"fabric_config": "FABRIC_3D"}, "FABRIC_1D_RING"), ({"fabric_reliability_mode": "LAX"}, "RELAXED_INIT")],
)
def test_a_name_that_ttnn_does_not_know_is_refused_with_the_names(on, options, text):
    program = f"""{SERVE}
try:
    session(**{options!r}).open()
except ValueError as error:
    found["refused"] = str(error)
with session() as mesh:
    found["then"] = list(mesh.shape)
"""
    found = on("N300").run(program)
    assert text in str(found["refused"])
    assert found["then"] == [1, 2]


def test_a_mesh_larger_than_the_machine_is_refused_before_ttnn_is_asked(on):
    program = f"""{SERVE}
try:
    session().open()
except ValueError as error:
    found["refused"] = str(error)
"""
    assert "needs 32 chips" in str(on("N300").run(program, MESH_DEVICE="TG")["refused"])


def test_the_mesh_is_closed_at_the_end_of_a_process_that_forgot(on):
    found = on("N300").run(f"{SERVE}\nsession().open()\nfound['opened'] = True")
    assert found == {"opened": True}


def test_a_device_bound_after_the_import_of_ttnn_counts(on):
    """The order that a data-parallel worker relies on: import, then bind, then open."""
    program = f"""{SERVE}
os.environ["TT_VISIBLE_DEVICES"] = "0,2"
found["chips"] = runtime.get_num_devices()
"""
    assert on("T3K").run(program) == {"chips": 4}
