"""The arithmetic of the two kinds of data parallelism, and the binding of a rank to its chips.

Lanes: one engine over one mesh program, N lanes in it. Standard: one engine process a rank, each with its own chips.
Source: "Data parallel" of the reference README and tt-metal contract 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tt_platform.mesh import VISIBLE_VARIABLE, Grid


class DataParallelError(ValueError):
    """Lanes or ranks do not come out even, or a rank is bound to other chips than its own."""


@dataclass(frozen=True, slots=True)
class Fold:
    """N lanes of M sequences in one engine."""

    lanes: int
    lane_seqs: int

    @property
    def total_seqs(self) -> int:
        return self.lanes * self.lane_seqs


def fold_lanes(data_parallel_size: int, max_num_seqs: int) -> Fold:
    """``--data-parallel-size N --max-num-seqs M``: M is the capacity of one lane.

    Raises:
        DataParallelError: a number is below 1.
    """
    if data_parallel_size < 1 or max_num_seqs < 1:
        raise DataParallelError(
            f"{data_parallel_size} lanes of {max_num_seqs} sequences cannot be run: allowed at least 1 of each; "
            "check --data-parallel-size and --max-num-seqs"
        )
    return Fold(data_parallel_size, max_num_seqs)


def split_lanes(lanes: int, total_seqs: int) -> Fold:
    """The fold of an engine whose global ``max_num_seqs`` is known.

    Raises:
        DataParallelError: the sequences do not divide evenly, or there is less than one for each lane.
    """
    if lanes < 1 or total_seqs < lanes or total_seqs % lanes:
        raise DataParallelError(
            f"max_num_seqs={total_seqs} does not divide into {lanes} lanes: allowed a multiple of {lanes}; "
            "change --max-num-seqs or --data-parallel-size"
        )
    return Fold(lanes, total_seqs // lanes)


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """The chips of one rank.

    Attributes:
        devices: chip ids, in the order ttnn gave them.
        grid: shape of the rank's mesh.
    """

    devices: tuple[int, ...]
    grid: Grid

    @property
    def visible(self) -> str:
        """The value of ``TT_VISIBLE_DEVICES``."""
        return ",".join(map(str, self.devices))


# Rows of a 4x8 Wormhole Galaxy in the order in which four ranks of one row each are cabled.
_GALAXY_ORDER = (0, 2, 3, 1)


def order_groups(groups: Sequence[DeviceGroup], cluster_type: str, parent: Grid) -> tuple[DeviceGroup, ...]:
    """Groups in rank order. Only four ranks on a 4x8 Wormhole Galaxy are reordered."""
    if cluster_type == "GALAXY" and parent == (4, 8) and len(groups) == len(_GALAXY_ORDER):
        return tuple(groups[index] for index in _GALAXY_ORDER)
    return tuple(groups)


def check_groups(groups: Sequence[DeviceGroup], ranks: int) -> None:
    """Every rank has chips, and no chip has two ranks.

    Raises:
        DataParallelError: otherwise.
    """
    if len(groups) != ranks:
        raise DataParallelError(
            f"--data-parallel-size {ranks} does not fit: the mesh splits into {len(groups)} groups of chips; "
            "choose a size that divides the mesh"
        )
    if any(not group.devices for group in groups):
        raise DataParallelError(f"--data-parallel-size {ranks} leaves a rank without a chip: choose a smaller size")
    devices = [device for group in groups for device in group.devices]
    if len(set(devices)) != len(devices):
        raise DataParallelError(
            "Two data-parallel ranks were given the same chip: choose another mesh with MESH_DEVICE"
        )


def check_device_ids(groups: Sequence[str], device_ids: Sequence[int] | None) -> None:
    """``--device-ids`` may only repeat what was found.

    Args:
        groups: the groups in rank order, each as a comma-joined list of chip ids.
        device_ids: the operator's list for all ranks together; None when it was not given.

    Raises:
        DataParallelError: it names other chips, or the same in another order.
    """
    found = ",".join(groups)
    if device_ids is not None and ",".join(map(str, device_ids)) != found:
        raise DataParallelError(
            f"--device-ids {','.join(map(str, device_ids))} is not supported on Tenstorrent: allowed {found}; "
            "remove it: the chips of a rank follow from MESH_DEVICE"
        )


def visible_devices_of_rank(
    groups: Sequence[str], local_rank: int, assigned: Sequence[int] | None, environ: Mapping[str, str]
) -> str | None:
    """The value that ``TT_VISIBLE_DEVICES`` must have in a worker; None leaves it as it is.

    Args:
        groups: the stored groups, each as a comma-joined list of chip ids; empty when there was no discovery.
        local_rank: rank of this process on its host.
        assigned: chips of ``--device-ids``, when there are no groups; None when it was not given.
        environ: environment of the process.

    Raises:
        DataParallelError: the rank has no group, or ``--device-ids`` and TT_VISIBLE_DEVICES name different chips.
    """
    if groups:
        if 0 <= local_rank < len(groups):
            return groups[local_rank]
        raise DataParallelError(
            f"Data-parallel rank {local_rank} has no chips: {len(groups)} groups were found; "
            "start as many ranks as there are groups"
        )
    if not assigned:
        return None
    chips = ",".join(map(str, assigned))
    inherited = environ.get(VISIBLE_VARIABLE, "").strip()
    if inherited and not set(chips.split(",")) <= set(inherited.replace(" ", "").split(",")):
        raise DataParallelError(
            f"--device-ids {chips} is outside of {VISIBLE_VARIABLE}={inherited}: allowed a part of it; "
            "remove one of the two"
        )
    return chips
