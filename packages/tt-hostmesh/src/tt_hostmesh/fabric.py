"""The fabric: which names exist, which machine can run which, and when it may change."""

from dataclasses import dataclass, field

from tt_hostmesh.clusters import Cluster
from tt_hostmesh.errors import HostMeshError

DISABLED = "DISABLED"

FABRIC_CONFIGS: tuple[str, ...] = (
    DISABLED,
    "FABRIC_1D",
    "FABRIC_1D_RING",
    "FABRIC_1D_NEIGHBOR_EXCHANGE",
    "FABRIC_2D",
    "FABRIC_2D_TORUS_X",
    "FABRIC_2D_TORUS_Y",
    "FABRIC_2D_TORUS_XY",
    "CUSTOM",
)
"""Members of ttnn.FabricConfig, as seen in ttnn 0.81.1."""

RELIABILITY_MODES: tuple[str, ...] = ("STRICT_INIT", "RELAXED_INIT")


@dataclass(frozen=True, slots=True)
class Fabric:
    """The fabric as last configured. `extras` are keywords that the host mesh has no use for."""

    config: str = DISABLED
    reliability_mode: str | None = None
    extras: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def enabled(self) -> bool:
        return self.config != DISABLED


def member_name(option: str, value: object, allowed: tuple[str, ...]) -> str:
    """The member name that `value`, a string or an enum member, stands for. Raises HostMeshError if there is none."""
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if name not in allowed:
        raise HostMeshError(f"{option}={value!r} is unknown: allowed are {', '.join(allowed)}")
    return name


def configure(cluster: Cluster, num_devices: int, kwargs: dict[str, object]) -> Fabric:
    """The fabric that `set_fabric_config(**kwargs)` asks for, checked against the machine.

    Raises HostMeshError: no `config`, an unknown name, a fabric on one device, a torus on a machine without the links,
    a ring on fewer than four devices.
    """
    extras = dict(kwargs)
    if "config" not in extras:
        raise HostMeshError("set_fabric_config needs the keyword config, for example config='FABRIC_1D'")
    config = member_name("fabric config", extras.pop("config"), FABRIC_CONFIGS)
    mode = extras.pop("reliability_mode", None)
    reliability = None if mode is None else member_name("reliability_mode", mode, RELIABILITY_MODES)
    if config != DISABLED and num_devices < 2:
        raise HostMeshError(f"fabric config {config} on {cluster.name}: one device has no fabric, leave it DISABLED")
    if "TORUS" in config and not cluster.is_galaxy:
        raise HostMeshError(f"fabric config {config} needs a Galaxy's wrap-around links, {cluster.name} has none")
    if config.endswith("RING") and num_devices < 4:
        raise HostMeshError(f"fabric config {config} needs at least four devices, {cluster.name} shows {num_devices}")
    return Fabric(config, reliability, extras)
