"""The machines that the software mesh can stand for."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from tt_hostmesh.errors import HostMeshError


@dataclass(frozen=True, slots=True)
class Cluster:
    """One machine: what ttnn would report about it.

    `mesh` is the shape of the system mesh (rows, columns); `cluster_type` a member name of ttnn.cluster.ClusterType.
    """

    name: str
    arch: str
    cluster_type: str
    num_devices: int
    num_pcie: int
    mesh: tuple[int, int]

    @property
    def is_galaxy(self) -> bool:
        return self.cluster_type in ("GALAXY", "BLACKHOLE_GALAXY")


WORMHOLE, BLACKHOLE = "wormhole_b0", "blackhole"

CLUSTERS: dict[str, Cluster] = {
    cluster.name: cluster
    for cluster in (
        Cluster("N150", WORMHOLE, "N150", 1, 1, (1, 1)),
        Cluster("N300", WORMHOLE, "N300", 2, 1, (2, 1)),
        Cluster("N150x4", WORMHOLE, "CUSTOM", 4, 4, (1, 4)),
        Cluster("T3K", WORMHOLE, "T3K", 8, 4, (2, 4)),
        Cluster("TG", WORMHOLE, "GALAXY", 32, 32, (8, 4)),
        Cluster("P100", BLACKHOLE, "P100", 1, 1, (1, 1)),
        Cluster("P150", BLACKHOLE, "P150", 1, 1, (1, 1)),
        Cluster("P150x2", BLACKHOLE, "P150_X2", 2, 2, (2, 1)),
        Cluster("P150x4", BLACKHOLE, "P150_X4", 4, 4, (2, 2)),
        Cluster("P150x8", BLACKHOLE, "P150_X8", 8, 8, (2, 4)),
        Cluster("P300", BLACKHOLE, "P300", 2, 2, (2, 1)),
        Cluster("P300x2", BLACKHOLE, "P300_X2", 4, 4, (2, 2)),
        Cluster("BH-Galaxy", BLACKHOLE, "BLACKHOLE_GALAXY", 32, 32, (8, 4)),
    )
}
ALIASES = {"GALAXY": "TG", "BLACKHOLE_GALAXY": "BH-Galaxy"}
"""Other names of the two Galaxy machines, as ttnn.cluster.ClusterType spells them."""

_BY_COUNT = {1: "N150", 2: "N300", 8: "T3K", 32: "TG"}


def choose_cluster(environ: Mapping[str, str]) -> Cluster:
    """The machine this process sees: TT_HOST_CLUSTER, else the one MESH_DEVICE names, else N150.

    A literal "(rows, columns)" in either variable means a Wormhole machine with that many devices.
    Raises HostMeshError for a name that is not in the table.
    """
    for variable in ("TT_HOST_CLUSTER", "MESH_DEVICE"):
        value = environ.get(variable, "").strip()
        if value:
            return _named(variable, value)
    return CLUSTERS["N150"]


def visible_devices(environ: Mapping[str, str], cluster: Cluster) -> tuple[int, ...]:
    """Device ids this process may use: those of TT_VISIBLE_DEVICES in its order, else all of the machine.

    Raises HostMeshError when the variable is not a list of distinct ids of this machine.
    """
    value = environ.get("TT_VISIBLE_DEVICES", "").strip()
    if not value:
        return tuple(range(cluster.num_devices))
    fields = [field.strip() for field in value.split(",")]
    if not all(field.isdecimal() for field in fields):
        raise _bad_visible(value, cluster)
    ids = tuple(int(field) for field in fields)
    if len(set(ids)) != len(ids) or max(ids) >= cluster.num_devices:
        raise _bad_visible(value, cluster)
    return ids


def visible_mesh(cluster: Cluster, count: int) -> tuple[int, int]:
    """Shape of the system mesh when `count` of the machine's devices are visible: the machine's own, else one row."""
    return cluster.mesh if count == cluster.num_devices else (1, count)


def _named(variable: str, value: str) -> Cluster:
    if value.startswith(("(", "[")):
        return _sized(variable, value)
    name = ALIASES.get(value, value)
    if name not in CLUSTERS:
        raise HostMeshError(
            f"{variable}={value!r} names no machine: allowed are {', '.join(CLUSTERS)} "
            f'or a literal "(rows, columns)"; correct it or unset it'
        )
    return CLUSTERS[name]


def _sized(variable: str, value: str) -> Cluster:
    try:
        grid = ast.literal_eval(value)
        rows, columns = grid
    except (ValueError, TypeError, SyntaxError):
        raise _bad_grid(variable, value) from None
    if not (isinstance(rows, int) and isinstance(columns, int) and rows > 0 and columns > 0):
        raise _bad_grid(variable, value)
    count = rows * columns
    if count in _BY_COUNT:
        return CLUSTERS[_BY_COUNT[count]]
    return Cluster(f"({rows},{columns})", WORMHOLE, "CUSTOM", count, count, (rows, columns))


def _bad_grid(variable: str, value: str) -> HostMeshError:
    return HostMeshError(f'{variable}={value!r} is not a mesh shape: write two positive numbers, for example "(1, 8)"')


def _bad_visible(value: str, cluster: Cluster) -> HostMeshError:
    return HostMeshError(
        f"TT_VISIBLE_DEVICES={value!r} is not usable on {cluster.name}: "
        f"list distinct device ids between 0 and {cluster.num_devices - 1}, for example '0,1'"
    )
