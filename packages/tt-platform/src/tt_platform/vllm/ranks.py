"""Standard data parallelism in vLLM: the groups of chips, stored in the configuration and bound in each worker."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, cast

from tt_platform.data_parallel import DataParallelError, check_device_ids, visible_devices_of_rank
from tt_platform.discovery import DiscoveryError, discover
from tt_platform.mesh import VISIBLE_VARIABLE, Grid
from tt_platform.vllm.additional import RANK_GRIDS, RANK_GROUPS, entries, put

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.tt.ranks")


def resolve_rank_groups(vllm_config: VllmConfig) -> None:
    """Find the groups of standard data parallelism once, in the process that starts the engines.

    Raises:
        ValueError: the mesh does not split, the search failed, or ``--device-ids`` says something else.
    """
    parallel = vllm_config.parallel_config
    if parallel.data_parallel_size <= 1 or not _starts_engines(vllm_config):
        return
    if not rank_groups(vllm_config):
        try:
            found = discover(parallel.data_parallel_size)
        except DiscoveryError as error:
            raise DataParallelError(str(error)) from error
        put(vllm_config, RANK_GROUPS, [group.visible for group in found])
        put(vllm_config, RANK_GRIDS, {group.visible: list(group.grid) for group in found})
    check_device_ids(rank_groups(vllm_config), parallel.assigned_physical_gpu_ids)


def _starts_engines(vllm_config: VllmConfig) -> bool:
    """False in one of several API servers of a launch: those build a configuration too, when the engines run."""
    parallel = vllm_config.parallel_config
    return parallel._api_process_count == 1 or parallel._api_process_rank < 0


def rank_groups(vllm_config: VllmConfig) -> Sequence[str]:
    """The stored groups, each a value of TT_VISIBLE_DEVICES; empty when there is no standard data parallelism."""
    return cast("Sequence[str]", entries(vllm_config).get(RANK_GROUPS) or ())


def bind_rank(vllm_config: VllmConfig, environ: MutableMapping[str, str] = os.environ) -> Grid | None:
    """Give this worker its chips: sets TT_VISIBLE_DEVICES, and returns the mesh to open; None leaves it to MESH_DEVICE.

    Must run before a device is used: ttnn reads the variable once. Besides the V1 pin this is the only write to the
    environment.

    Raises:
        DataParallelError: the rank has no group.
    """
    parallel = vllm_config.parallel_config
    groups = rank_groups(vllm_config)
    rank = parallel.data_parallel_rank_local or 0
    assigned = None if groups else parallel.assigned_physical_gpu_ids
    visible = visible_devices_of_rank(groups, rank, assigned, environ)
    if visible is None:
        return None
    environ[VISIBLE_VARIABLE] = visible
    logger.info("Bound TT_VISIBLE_DEVICES=%s for local DP rank %d", visible, rank)
    grids = cast("Mapping[str, Sequence[int]]", entries(vllm_config).get(RANK_GRIDS) or {})
    grid = grids.get(visible)
    if grid is None:
        return None
    logger.info("TT worker standard-DP binding: rank %d, chips %s, mesh %s", rank, visible, tuple(grid))
    return grid[0], grid[1]
