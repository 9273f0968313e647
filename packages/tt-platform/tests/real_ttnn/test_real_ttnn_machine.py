"""Detection, mesh and fabric against the real ttnn, on machines described by files."""

from __future__ import annotations

import pytest

from tt_platform.detect import detect, device_problem
from tt_platform.discovery import discover
from tt_platform.fabric import default_fabric
from tt_platform.runtime import Runtime, RuntimeChoice, TtnnRuntime, load_runtime

pytest.importorskip("ttnn")

# chips, PCIe devices, architecture, system mesh, default fabric
TABLE = {
    "N150": (1, 1, "wormhole_b0", [1, 1], "none"),
    "N300": (2, 1, "wormhole_b0", [2, 1], "FABRIC_1D"),
    "T3K": (8, 4, "wormhole_b0", [2, 4], "FABRIC_1D"),
    "GALAXY": (32, 32, "wormhole_b0", [8, 4], "FABRIC_1D_RING"),
    "P150": (1, 1, "blackhole", [1, 1], "none"),
    "P150_X8": (8, 8, "blackhole", [2, 4], "FABRIC_1D"),
    "BLACKHOLE_GALAXY": (32, 32, "blackhole", [8, 4], "FABRIC_2D_TORUS_XY"),
}


def test_ttnn_is_a_runtime_and_importing_it_opens_nothing():
    runtime = load_runtime(RuntimeChoice.AUTO)
    assert isinstance(runtime, TtnnRuntime)
    assert isinstance(runtime, Runtime)
    assert {"DISABLED", "FABRIC_1D", "FABRIC_1D_RING", "FABRIC_2D_TORUS_XY"} <= set(runtime.fabric_config_names())
    assert runtime.get_default_device() is None


@pytest.mark.parametrize("name", list(TABLE))
def test_a_machine_is_detected(on, name):
    facts = detect(on(name).environ)
    chips, pcie, architecture, mesh, fabric = TABLE[name]
    assert facts.ttnn.reason == "imports"
    assert facts.chips.value == chips, facts.chips
    assert facts.pcie_devices.value == pcie
    assert facts.architecture.value == architecture
    assert facts.cluster_type.value == name
    assert facts.system_mesh.value == mesh, facts.system_mesh
    assert facts.fabric.value == fabric
    assert facts.mesh_device.value == [1, chips]
    assert device_problem(on(name).environ) is None


def test_every_machine_has_a_default_fabric_that_ttnn_knows():
    known = TtnnRuntime().fabric_config_names()
    assert {default_fabric(name) for name in TABLE} <= set(known)


def test_ttnn_without_a_chip_is_two_facts_and_a_sentence_with_what_to_do(on):
    environ = on(None).environ
    facts = detect(environ)
    assert facts.ttnn.value == "0.81.1"
    assert facts.chips.value == 0
    assert facts.cluster_type.value is None
    assert "No chips detected" in facts.cluster_type.reason
    assert "\n" not in facts.cluster_type.reason
    assert "sees no Tenstorrent chip" in (device_problem(environ) or "")


def test_visible_devices_narrow_the_machine_and_the_inherited_mesh(on):
    environ = {**on("T3K").environ, "TT_VISIBLE_DEVICES": "0", "MESH_DEVICE": "T3K"}
    facts = detect(environ)
    assert facts.chips.value == 2  # one PCIe device is an N300 board of two chips
    assert facts.mesh_device.value == [1, 2]


def test_a_mesh_larger_than_the_machine_is_a_fact_with_a_reason(on):
    facts = detect({**on("N300").environ, "MESH_DEVICE": "T3K"})
    assert facts.mesh_device.value is None
    assert "needs 8 chips" in facts.mesh_device.reason


@pytest.mark.parametrize(("name", "mesh", "ranks"), [("T3K", "T3K", 2), ("T3K", "T3K", 4), ("P150_X8", "P150x8", 2)])
def test_data_parallel_ranks_get_disjoint_chips(on, name, mesh, ranks):
    groups = discover(ranks, {**on(name).environ, "MESH_DEVICE": mesh})
    assert {group.grid for group in groups} == {(1, 8 // ranks)}
    assert sorted(chip for group in groups for chip in group.devices) == list(range(8))


def test_a_rank_sees_the_chips_of_its_group(on):
    environ = {**on("T3K").environ, "MESH_DEVICE": "T3K"}
    for group in discover(2, environ):
        assert detect({**environ, "TT_VISIBLE_DEVICES": group.visible}).chips.value == 4
