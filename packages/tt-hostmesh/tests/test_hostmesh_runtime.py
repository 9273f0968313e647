"""The simulated machine: what it reports, what it refuses, what is left open."""

from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_hostmesh import HostMeshError, HostRuntime, Machine, open_mesh_count
from tt_hostmesh.clusters import CLUSTERS, choose_cluster, visible_devices

# Seen on the real ttnn 0.81.1 over cluster descriptors of these machines.
REPORTED = {
    "N150": (1, 1, "wormhole_b0", "N150", (1, 1)),
    "N300": (2, 1, "wormhole_b0", "N300", (2, 1)),
    "T3K": (8, 4, "wormhole_b0", "T3K", (2, 4)),
    "TG": (32, 32, "wormhole_b0", "GALAXY", (8, 4)),
    "P150": (1, 1, "blackhole", "P150", (1, 1)),
    "P150x8": (8, 8, "blackhole", "P150_X8", (2, 4)),
    "BH-Galaxy": (32, 32, "blackhole", "BLACKHOLE_GALAXY", (8, 4)),
}


@pytest.fixture
def machine_of():
    """machine_of(**variables) -> runtime. Every mesh it opened is closed at the end."""
    machines = []

    def make(**environ):
        machines.append(Machine(environ))
        return HostRuntime(machines[-1])

    yield make
    for machine in machines:
        for mesh in list(machine.open_meshes):
            runtime = HostRuntime(machine)
            for submesh in mesh.get_submeshes():
                runtime.close_mesh_device(submesh)
            runtime.close_mesh_device(mesh)


@pytest.mark.parametrize("name", REPORTED)
def test_a_machine_reports_what_ttnn_reports_on_it(machine_of, name):
    runtime = machine_of(TT_HOST_CLUSTER=name)
    reported = (
        runtime.get_num_devices(),
        runtime.get_num_pcie_devices(),
        runtime.get_arch_name(),
        runtime.get_cluster_type(),
        runtime.get_system_mesh_shape(),
    )
    assert reported == REPORTED[name]
    assert runtime.name == "host"
    assert not runtime.using_distributed_env()


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "N150"),
        ({"MESH_DEVICE": ""}, "N150"),
        ({"MESH_DEVICE": "T3K"}, "T3K"),
        ({"MESH_DEVICE": "(1, 8)"}, "T3K"),
        ({"MESH_DEVICE": "(4,8)"}, "TG"),
        ({"MESH_DEVICE": "N150", "TT_HOST_CLUSTER": "P150x4"}, "P150x4"),
        ({"TT_HOST_CLUSTER": "BLACKHOLE_GALAXY"}, "BH-Galaxy"),
    ],
)
def test_the_machine_is_chosen_by_variable(environ, name):
    assert choose_cluster(environ) == CLUSTERS[name]


def test_a_literal_shape_of_no_known_machine_is_a_machine_of_that_many_devices():
    cluster = choose_cluster({"MESH_DEVICE": "(2, 3)"})
    assert (cluster.num_devices, cluster.cluster_type, cluster.mesh) == (6, "CUSTOM", (2, 3))


def outcome(function, *arguments):
    """(value, "") or (None, message of the HostMeshError)."""
    try:
        return function(*arguments), ""
    except HostMeshError as error:
        return None, str(error)


@given(st.sampled_from(["MESH_DEVICE", "TT_HOST_CLUSTER"]), st.text(max_size=12) | st.from_regex(r"\A[(\[][-0-9, ()]*"))
def test_choosing_a_machine_is_total(variable, text):
    cluster, message = outcome(choose_cluster, {variable: text})
    if cluster is None:
        assert variable in message
        assert repr(text.strip()) in message
    else:
        assert cluster.num_devices >= 1


@given(st.text(alphabet="0123456789, -x", max_size=12))
def test_visible_devices_are_distinct_ids_of_the_machine_or_an_error(text):
    ids, message = outcome(visible_devices, {"TT_VISIBLE_DEVICES": text}, CLUSTERS["T3K"])
    if ids is None:
        assert "TT_VISIBLE_DEVICES" in message
    else:
        assert ids
        assert len(set(ids)) == len(ids)
        assert set(ids) <= set(range(8))


def test_a_process_sees_its_visible_devices_only(machine_of):
    runtime = machine_of(TT_HOST_CLUSTER="T3K", TT_VISIBLE_DEVICES="4,5")
    assert runtime.get_num_devices() == 2
    assert runtime.get_system_mesh_shape() == (1, 2)
    runtime.set_fabric_config(config="FABRIC_1D")
    assert runtime.open_mesh_device((1, 2)).get_device_ids() == [4, 5]


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (1, 8), (8, 1), (1, 3), (2, 2)])
def test_meshes_that_fit_open(machine_of, shape):
    runtime = machine_of(TT_HOST_CLUSTER="T3K")
    mesh = runtime.open_mesh_device(shape)
    assert tuple(mesh.shape) == shape
    assert mesh.shape.mesh_size() == mesh.get_num_devices() == len(mesh.get_device_ids())


@pytest.mark.parametrize("shape", [(1, 9), (3, 3), (2, 5), (8, 2)])
def test_a_mesh_larger_than_the_system_mesh_is_refused(machine_of, shape):
    runtime = machine_of(TT_HOST_CLUSTER="T3K")
    with pytest.raises(HostMeshError, match=r"is larger than the system mesh \(2, 4\) of T3K"):
        runtime.open_mesh_device(shape)
    assert runtime.open_meshes == 0


@pytest.mark.parametrize("shape", [(0, 1), (1,), 4, (1, -1), ("1", "1"), (True, None)])
def test_a_shape_is_two_positive_numbers(machine_of, shape):
    with pytest.raises(HostMeshError, match="not a pair of positive numbers"):
        machine_of().open_mesh_device(shape)


def test_devices_belong_to_one_mesh(machine_of):
    runtime = machine_of(TT_HOST_CLUSTER="T3K")
    first = runtime.open_mesh_device((1, 6))
    with pytest.raises(HostMeshError, match=r"needs 4 devices, 2 are free"):
        runtime.open_mesh_device((1, 4))
    second = runtime.open_mesh_device((1, 2))
    assert not set(first.get_device_ids()) & set(second.get_device_ids())


def test_closing_twice_is_refused(machine_of):
    runtime = machine_of()
    mesh = runtime.open_mesh_device((1, 1))
    runtime.close_mesh_device(mesh)
    with pytest.raises(HostMeshError, match="is closed: close is not possible"):
        runtime.close_mesh_device(mesh)


def test_a_closed_mesh_does_nothing(machine_of):
    runtime = machine_of()
    mesh = runtime.open_mesh_device((1, 1))
    runtime.set_default_device(mesh)
    runtime.close_mesh_device(mesh)
    assert runtime.get_default_device() is None
    for action in (
        lambda: mesh.submit(int),
        mesh.finish,
        lambda: mesh.create_submeshes((1, 1)),
        lambda: runtime.read_device_profiler(mesh),
        lambda: runtime.set_default_device(mesh),
    ):
        with pytest.raises(HostMeshError, match="is closed"):
            action()


def test_something_that_is_no_mesh_is_refused(machine_of):
    with pytest.raises(HostMeshError, match="str is not a mesh"):
        machine_of().close_mesh_device("mesh")


def test_submeshes_tile_the_mesh_row_by_row(machine_of):
    runtime = machine_of(TT_HOST_CLUSTER="TG")
    mesh = runtime.open_mesh_device((4, 8))
    parts = mesh.create_submeshes((2, 4))
    assert mesh.get_submeshes() == parts
    assert [part.get_device_ids()[:2] for part in parts] == [[0, 1], [4, 5], [16, 17], [20, 21]]
    assert sorted(device for part in parts for device in part.get_device_ids()) == list(range(32))


@pytest.mark.parametrize("shape", [(3, 8), (4, 3), (8, 8)])
def test_submeshes_that_do_not_tile_are_refused(machine_of, shape):
    mesh = machine_of(TT_HOST_CLUSTER="TG").open_mesh_device((4, 8))
    with pytest.raises(HostMeshError, match="does not tile"):
        mesh.create_submeshes(shape)


def test_submeshes_are_made_once_and_closed_before_their_mesh(machine_of):
    runtime = machine_of(TT_HOST_CLUSTER="N300")
    mesh = runtime.open_mesh_device((1, 2))
    first, second = mesh.create_submeshes((1, 1))
    with pytest.raises(HostMeshError, match="has submeshes already"):
        mesh.create_submeshes((1, 1))
    with pytest.raises(HostMeshError, match="still has 2 open submeshes"):
        runtime.close_mesh_device(mesh)
    runtime.close_mesh_device(first)
    assert mesh.get_submeshes() == [second]
    runtime.close_mesh_device(second)
    runtime.close_mesh_device(mesh)
    assert runtime.open_meshes == 0


class Config(Enum):
    FABRIC_1D = 1


@pytest.mark.parametrize("config", ["FABRIC_1D", Config.FABRIC_1D])
def test_a_fabric_is_named_by_string_or_member(machine_of, config):
    runtime = machine_of(TT_HOST_CLUSTER="T3K")
    runtime.set_fabric_config(config=config, reliability_mode="RELAXED_INIT", num_planes=2)
    assert runtime.fabric.config == "FABRIC_1D"
    assert runtime.fabric.reliability_mode == "RELAXED_INIT"
    assert runtime.fabric.extras == {"num_planes": 2}
    assert "FABRIC_1D" in runtime.fabric_config_names()


REFUSED_FABRIC = [
    ("T3K", {"config": "FABRIC_9D"}, "fabric config='FABRIC_9D' is unknown: allowed are DISABLED"),
    ("T3K", {"config": 3}, "fabric config=3 is unknown"),
    ("T3K", {}, "needs the keyword config"),
    ("T3K", {"config": "FABRIC_1D", "reliability_mode": "LAX"}, "reliability_mode='LAX' is unknown"),
    ("T3K", {"config": "FABRIC_2D_TORUS_XY"}, "needs a Galaxy's wrap-around links"),
    ("N300", {"config": "FABRIC_1D_RING"}, "needs at least four devices"),
    ("N150", {"config": "FABRIC_1D"}, "one device has no fabric"),
]


@pytest.mark.parametrize(("cluster", "keywords", "text"), REFUSED_FABRIC)
def test_a_fabric_the_machine_cannot_run_is_refused(machine_of, cluster, keywords, text):
    runtime = machine_of(TT_HOST_CLUSTER=cluster)
    with pytest.raises(HostMeshError, match=text):
        runtime.set_fabric_config(**keywords)
    assert runtime.fabric.config == "DISABLED"


def test_the_fabric_does_not_change_under_an_open_mesh(machine_of):
    runtime = machine_of(TT_HOST_CLUSTER="T3K")
    runtime.set_fabric_config(config="FABRIC_1D")
    mesh = runtime.open_mesh_device((1, 8))
    with pytest.raises(HostMeshError, match="while a mesh is open"):
        runtime.set_fabric_config(config="DISABLED")
    runtime.close_mesh_device(mesh)
    runtime.set_fabric_config(config="DISABLED")


def test_several_devices_do_no_work_without_a_fabric(machine_of):
    """Opening is allowed: that is how device groups are found. Fails when work is accepted."""
    runtime = machine_of(TT_HOST_CLUSTER="T3K")
    mesh = runtime.open_mesh_device((1, 8))
    with pytest.raises(HostMeshError, match="8 devices but was opened without a fabric"):
        mesh.submit(int)
    assert mesh.create_submeshes((1, 1))[0].submit(lambda: 5).result() == 5


@pytest.mark.parametrize("axis", ["ROW", "row"])
def test_row_dispatch_is_refused_on_blackhole(machine_of, axis):
    with pytest.raises(HostMeshError, match="ROW is not possible on blackhole"):
        machine_of(TT_HOST_CLUSTER="P150").open_mesh_device((1, 1), dispatch_core_axis=axis)
    assert machine_of().open_mesh_device((1, 1), dispatch_core_axis=axis).parameters.dispatch_core_axis == "ROW"
    machine_of(TT_HOST_CLUSTER="P150").open_mesh_device((1, 1), dispatch_core_axis="col")


@pytest.mark.parametrize("option", ["trace_region_size", "worker_l1_size", "l1_small_size"])
def test_sizes_are_numbers_of_bytes(machine_of, option):
    for value in (-1, 1.5, "many", True):
        with pytest.raises(HostMeshError, match=f"{option}={value!r} is not a size"):
            machine_of().open_mesh_device((1, 1), **{option: value})


def test_events_of_other_meshes_are_refused(machine_of):
    runtime, other = machine_of(), machine_of()
    mesh = other.open_mesh_device((1, 1))
    event = mesh.submit(int)
    with pytest.raises(HostMeshError, match="belongs to a mesh that is not open in this runtime"):
        runtime.event_synchronize(event)
    other.event_synchronize(event)
    other.close_mesh_device(mesh)
    with pytest.raises(HostMeshError, match="not open"):
        other.event_synchronize(event)
    with pytest.raises(HostMeshError, match="object, not an event"):
        runtime.event_synchronize(object())


def test_runtimes_of_a_process_share_its_machine():
    before = open_mesh_count()
    first, second = HostRuntime(), HostRuntime()
    mesh = first.open_mesh_device((1, 1))
    assert open_mesh_count() == before + 1 == second.open_meshes
    second.set_default_device(mesh)
    assert first.get_default_device() is mesh
    second.read_device_profiler(mesh)
    second.close_mesh_device(mesh)
    assert open_mesh_count() == before
