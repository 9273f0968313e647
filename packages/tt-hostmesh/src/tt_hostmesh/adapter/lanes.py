"""Lanes: how rows, devices and block ids are divided among the copies of a model on one mesh."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tt_hostmesh.mesh import HostMesh


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model sits. Rows [l * rows_per_lane, (l + 1) * rows_per_lane) belong to lane l."""

    mesh: HostMesh
    submeshes: tuple[HostMesh, ...]
    max_batch_size: int
    max_seq_len: int

    @property
    def lanes(self) -> int:
        return len(self.submeshes)

    @property
    def rows_per_lane(self) -> int:
        return self.max_batch_size // self.lanes

    @property
    def devices_per_lane(self) -> int:
        return self.submeshes[0].get_num_devices()

    def lane_of(self, row: int) -> int:
        return row // self.rows_per_lane

    def pool_offsets(self, num_blocks: int) -> Tensor:
        """int64 [B, 1]: what to add to a row's lane-local block ids to get ids of the common pool."""
        lanes = torch.arange(self.max_batch_size) // self.rows_per_lane
        return (lanes * num_blocks)[:, None]


def place(mesh: HostMesh, max_batch_size: int, max_seq_len: int, lanes: int) -> Placement:
    """Split `mesh` into `lanes` submeshes. Raises ValueError when rows or devices do not divide."""
    if lanes < 1 or max_batch_size < 1 or max_batch_size % lanes:
        raise ValueError(
            f"max_batch_size={max_batch_size} does not divide among tt_data_parallel={lanes} lanes: "
            "it must be a positive multiple (it counts the rows of all lanes)"
        )
    return Placement(mesh, _submeshes(mesh, lanes), max_batch_size, max_seq_len)


def _submeshes(mesh: HostMesh, lanes: int) -> tuple[HostMesh, ...]:
    if lanes == 1:
        return (mesh,)
    rows, columns = mesh.shape
    if columns % lanes == 0:
        return tuple(mesh.create_submeshes((rows, columns // lanes)))
    if rows % lanes == 0:
        return tuple(mesh.create_submeshes((rows // lanes, columns)))
    if lanes % columns == 0 and rows % (lanes // columns) == 0:
        return tuple(mesh.create_submeshes((rows * columns // lanes, 1)))
    raise ValueError(
        f"tt_data_parallel={lanes} lanes do not fit a mesh of {rows} x {columns} devices: "
        "choose a lane count that divides it, or a larger MESH_DEVICE"
    )
