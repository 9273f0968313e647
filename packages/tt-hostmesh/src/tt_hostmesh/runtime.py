"""The runtime of the software mesh: ttnn's device calls, checked, over a machine that does not exist."""

import os
from collections.abc import Mapping

from tt_hostmesh.clusters import Cluster, choose_cluster, visible_devices, visible_mesh
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.fabric import FABRIC_CONFIGS, Fabric, configure, member_name
from tt_hostmesh.mesh import HostMesh, MeshParameters, MeshShape
from tt_hostmesh.timeline import HostEvent


class Machine:
    """State of the simulated machine, one for a process as with a real driver: fabric, open meshes, default device."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.environ = environ
        self.fabric = Fabric()
        self.open_meshes: list[HostMesh] = []
        self.default_device: HostMesh | None = None
        self.profiler_reads = 0

    def cluster(self) -> Cluster:
        return choose_cluster(self.environ)

    def visible(self) -> tuple[int, ...]:
        return visible_devices(self.environ, self.cluster())

    def free_devices(self) -> list[int]:
        """Visible devices that no open mesh holds."""
        taken = {device for mesh in self.open_meshes for device in mesh.get_device_ids()}
        return [device for device in self.visible() if device not in taken]


_MACHINE = Machine()


def open_mesh_count() -> int:
    """Meshes of this process that are open now; submeshes are not counted. For tests and shutdown checks."""
    return len(_MACHINE.open_meshes)


class HostRuntime:
    """The `Runtime` protocol of tt-platform on the software mesh.

    All instances share the process's one machine, which TT_HOST_CLUSTER, MESH_DEVICE and TT_VISIBLE_DEVICES describe;
    the environment is read at each call, so a variable set before the mesh is opened counts. Tests may pass a
    `Machine` of their own.
    """

    name = "host"

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine or _MACHINE

    @property
    def open_meshes(self) -> int:
        """Number of open meshes, submeshes not counted."""
        return len(self._machine.open_meshes)

    @property
    def fabric(self) -> Fabric:
        return self._machine.fabric

    @property
    def profiler_reads(self) -> int:
        return self._machine.profiler_reads

    def get_num_devices(self) -> int:
        return len(self._machine.visible())

    def get_num_pcie_devices(self) -> int:
        return min(self._machine.cluster().num_pcie, self.get_num_devices())

    def get_arch_name(self) -> str:
        return self._machine.cluster().arch

    def get_cluster_type(self) -> str:
        return self._machine.cluster().cluster_type

    def get_system_mesh_shape(self) -> tuple[int, int]:
        return visible_mesh(self._machine.cluster(), self.get_num_devices())

    def using_distributed_env(self) -> bool:
        return False

    def fabric_config_names(self) -> tuple[str, ...]:
        return FABRIC_CONFIGS

    def set_fabric_config(self, **kwargs: object) -> None:
        """Set the fabric of the next mesh. Keywords: config, reliability_mode (names or enum members), others kept.

        Raises HostMeshError while a mesh is open, for unknown names and for a fabric the machine cannot run.
        """
        if self._machine.open_meshes:
            raise HostMeshError("set_fabric_config while a mesh is open: close the mesh first")
        self._machine.fabric = configure(self._machine.cluster(), self.get_num_devices(), kwargs)

    def open_mesh_device(
        self,
        shape: tuple[int, int],
        *,
        dispatch_core_axis: str | None = None,
        trace_region_size: int | None = None,
        worker_l1_size: int | None = None,
        l1_small_size: int | None = None,
    ) -> HostMesh:
        """Open a mesh on the first free devices. Sizes in bytes.

        Raises HostMeshError: larger than the system mesh, devices held by another mesh, ROW dispatch on Blackhole,
        a size that is not a natural number.
        """
        parameters = MeshParameters(
            _dispatch_axis(dispatch_core_axis, self.get_arch_name()),
            _size("trace_region_size", trace_region_size),
            _size("worker_l1_size", worker_l1_size),
            _size("l1_small_size", l1_small_size),
        )
        grid = MeshShape.of(shape)
        self._require_fits(grid)
        free = self._machine.free_devices()
        if grid.mesh_size() > len(free):
            raise HostMeshError(
                f"mesh {tuple(grid)} needs {grid.mesh_size()} devices, {len(free)} are free: "
                "another mesh of this process is open"
            )
        mesh = HostMesh(grid, free[: grid.mesh_size()], parameters, fabric_enabled=self._machine.fabric.enabled)
        self._machine.open_meshes.append(mesh)
        return mesh

    def close_mesh_device(self, mesh: HostMesh) -> None:
        """Drain and close a mesh or a submesh. Raises HostMeshError when it is closed already or has open submeshes."""
        self._require_mesh(mesh)
        mesh.close()
        if mesh.parent is None:
            self._machine.open_meshes.remove(mesh)
        if self._machine.default_device is mesh:
            self._machine.default_device = None

    def read_device_profiler(self, mesh: HostMesh) -> None:
        self._require_mesh(mesh)
        mesh.require_open("read the profiler")
        self._machine.profiler_reads += 1

    def set_default_device(self, mesh: HostMesh) -> None:
        self._require_mesh(mesh)
        mesh.require_open("set the default device")
        self._machine.default_device = mesh

    def get_default_device(self) -> HostMesh | None:
        return self._machine.default_device

    def event_synchronize(self, event: object) -> None:
        """Wait for an event. Raises what its command raised; HostMeshError for an event of no open mesh here."""
        if not isinstance(event, HostEvent):
            raise HostMeshError(f"event_synchronize got {type(event).__name__}, not an event of the software mesh")
        owner = event.owner
        root = owner
        while isinstance(root, HostMesh) and root.parent is not None:
            root = root.parent
        if not isinstance(owner, HostMesh) or root not in self._machine.open_meshes:
            raise HostMeshError(f"event {event.label!r} belongs to a mesh that is not open in this runtime")
        event.wait()

    def _require_fits(self, grid: MeshShape) -> None:
        system = self.get_system_mesh_shape()
        fits = any(grid.rows <= r and grid.columns <= c for r, c in (system, system[::-1]))
        line = 1 in grid and grid.mesh_size() <= self.get_num_devices()
        if not fits and not line:
            raise HostMeshError(
                f"mesh {tuple(grid)} is larger than the system mesh {system} of {self._machine.cluster().name}: "
                "choose a smaller MESH_DEVICE or another machine with TT_HOST_CLUSTER"
            )

    def _require_mesh(self, mesh: object) -> None:
        if not isinstance(mesh, HostMesh):
            raise HostMeshError(f"{type(mesh).__name__} is not a mesh of the software runtime")


def _dispatch_axis(value: object, arch: str) -> str | None:
    if value is None:
        return None
    axis = member_name("dispatch_core_axis", value.upper() if isinstance(value, str) else value, ("ROW", "COL"))
    if axis == "ROW" and arch == "blackhole":
        raise HostMeshError("dispatch_core_axis=ROW is not possible on blackhole: use COL or leave it out")
    return axis


def _size(option: str, value: object) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise HostMeshError(f"{option}={value!r} is not a size: give a number of bytes, 0 or more")
    return value
