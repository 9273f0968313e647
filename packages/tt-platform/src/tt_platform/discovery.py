"""Find the chips of each rank of standard data parallelism. Source: tt-metal contract 3.3.

Only ttnn knows how a mesh splits, and it has to open the mesh to say so. That is done in a child process, which holds
the devices for as long as it takes and no longer; the process that starts the engines never opens one.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from tt_platform.data_parallel import DeviceGroup, check_groups, order_groups
from tt_platform.mesh import DISCOVERY_GALAXY, MESH_VARIABLE, Grid, parse_mesh
from tt_platform.runtime import MeshDevice, Runtime, load_runtime

logger = logging.getLogger("vllm.tt.discovery")

ANSWER_SECONDS = 60.0
EXIT_SECONDS = 5.0

# tt-metal's own split, newest package root first. A mesh splits differently where neither is installed.
_SPLITTERS = ("models.ttt_compat.tt.generator", "models.tt_transformers.tt.generator")


class DiscoveryError(RuntimeError):
    """The chips of the ranks were not found. The subclasses say how it ended."""


class DiscoveryTimeout(DiscoveryError):
    """The child did not answer in time."""


class DiscoverySilent(DiscoveryError):
    """The child ended well without an answer."""


class DiscoveryExit(DiscoveryError):
    """The child ended with an exit code or a signal."""


class DiscoveryFailed(DiscoveryError):
    """The child answered that it failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the child found: the groups in ttnn's order, and what ordering them needs to know."""

    groups: tuple[DeviceGroup, ...]
    cluster_type: str
    parent: Grid


def discover(
    ranks: int, environ: Mapping[str, str] = os.environ, *, timeout: float = ANSWER_SECONDS
) -> tuple[DeviceGroup, ...]:
    """The chips of ``ranks`` data-parallel ranks, in rank order.

    Raises:
        DiscoveryTimeout, DiscoverySilent, DiscoveryExit, DiscoveryFailed: the child's four bad ends.
        DataParallelError: the mesh does not split into one group of chips a rank.
    """
    answer = _read(_ask(ranks, environ, timeout))
    groups = order_groups(answer.groups, answer.cluster_type, answer.parent)
    if groups != answer.groups:
        logger.info("Reordered TT single-host DP device groups for a Galaxy: %s", _names(groups))
    check_groups(groups, ranks)
    logger.info("Resolved TT single-host DP device groups: %s", _names(groups))
    return groups


def _names(groups: tuple[DeviceGroup, ...]) -> str:
    return " ".join(f"[{group.visible}]" for group in groups)


def _ask(ranks: int, environ: Mapping[str, str], timeout: float) -> bytes:
    command = [sys.executable, "-c", f"from tt_platform.discovery import answer; answer({ranks})"]
    with subprocess.Popen(
        command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            reply, log = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(child)
            raise DiscoveryTimeout(
                f"Finding the chips of {ranks} data-parallel ranks timed out after {timeout:g} s: is another process "
                "holding the devices? Look at `python -m tt_platform`"
            ) from None
        except BaseException:  # a signal or Ctrl-C of the parent must not leave a child behind that holds devices
            _end(child)
            raise
    if child.returncode != 0:
        last = log.decode(errors="replace").strip().splitlines()[-1:]
        raise DiscoveryExit(
            f"Finding the chips of {ranks} data-parallel ranks ended with exit code {child.returncode}: {''.join(last)}"
        )
    if not reply:
        raise DiscoverySilent(f"Finding the chips of {ranks} data-parallel ranks ended before answering")
    return reply


def _end(child: subprocess.Popen[bytes]) -> None:
    """Let the child close its mesh; kill it when it does not."""
    child.terminate()
    try:
        child.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def _read(reply: bytes) -> Answer:
    answer = cast("dict[str, Any]", json.loads(reply))
    if "error" in answer:
        raise DiscoveryFailed(f"discovery failed: {answer['error']}")
    groups = tuple(DeviceGroup(tuple(group["devices"]), tuple(group["grid"])) for group in answer["groups"])
    return Answer(groups, answer["cluster_type"], tuple(answer["parent"]))


def answer(ranks: int) -> None:
    """Entry of the child: one JSON object on standard output. The runtime's own log there goes to stderr."""
    sys.stdout.flush()
    reply = os.dup(1)
    os.dup2(2, 1)
    try:
        found = _as_json(split_mesh(load_runtime(), ranks, os.environ))
    except (ImportError, OSError, RuntimeError, ValueError, AttributeError, TypeError) as error:
        found = {"error": str(error).split("backtrace:")[0].strip() or type(error).__name__}
    with os.fdopen(reply, "w") as out:
        json.dump(found, out)


def _as_json(answer: Answer) -> dict[str, object]:
    groups = [{"devices": group.devices, "grid": group.grid} for group in answer.groups]
    return {"groups": groups, "cluster_type": answer.cluster_type, "parent": answer.parent}


def split_mesh(runtime: Runtime, ranks: int, environ: Mapping[str, str]) -> Answer:
    """Open the parent mesh with neither fabric nor sizes, split it, and close everything."""
    parent = parent_grid(runtime, environ)
    mesh = runtime.open_mesh_device(parent)
    try:
        submeshes = create_submeshes(mesh, ranks)
        groups = tuple(_group(submesh) for submesh in submeshes)
        for submesh in submeshes:
            if submesh is not mesh:
                runtime.close_mesh_device(submesh)
    finally:
        runtime.close_mesh_device(mesh)
    return Answer(groups, runtime.get_cluster_type(), parent)


def parent_grid(runtime: Runtime, environ: Mapping[str, str]) -> Grid:
    """The mesh that is split: ``MESH_DEVICE``, with a Galaxy as 4 rows of 8, or one row of all chips."""
    value = environ.get(MESH_VARIABLE, "").strip()
    return parse_mesh(value, galaxy=DISCOVERY_GALAXY) if value else (1, runtime.get_num_devices())


def _group(submesh: MeshDevice) -> DeviceGroup:
    rows, columns = tuple(submesh.shape)
    return DeviceGroup(tuple(int(device) for device in submesh.get_device_ids()), (int(rows), int(columns)))


def create_submeshes(mesh: MeshDevice, ranks: int) -> list[MeshDevice]:
    """Split ``mesh`` as tt-metal's generators do it; where they are not installed, into rows of equal size."""
    for name in _SPLITTERS:
        try:
            split = import_module(name).create_submeshes
        except ModuleNotFoundError as error:
            if error.name and name.startswith(error.name):
                continue
            raise
        return list(split(mesh, ranks))
    chips = mesh.get_num_devices()
    if ranks == 1:
        return [mesh]
    if chips % ranks:
        raise ValueError(f"{chips} chips do not divide by {ranks} ranks")
    shape: Any = mesh.shape
    make_shape = cast("Callable[[int, int], object]", type(shape))  # ttnn.MeshShape, or the software mesh's own
    return list(mesh.create_submeshes(make_shape(1, chips // ranks)))
