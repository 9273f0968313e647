"""A software mesh: runs the Tenstorrent serving stack with no Tenstorrent hardware."""

from tt_hostmesh.errors import ContractError, HostMeshError
from tt_hostmesh.runtime import HostRuntime, Machine, open_mesh_count

__all__ = ["ContractError", "HostMeshError", "HostRuntime", "Machine", "open_mesh_count"]
