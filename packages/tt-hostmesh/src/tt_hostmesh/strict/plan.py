"""The commands of a decode call against what the device holds (contract 1.6, 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tt_hostmesh.adapter.arguments import DecodeArguments
from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.strict.breach import Where
from tt_hostmesh.strict.parameters import snapshot
from tt_hostmesh.strict.values import Ints, flag

CLAUSE = "1.6"
COMMANDS = ("reload_inputs", "reload_page_table", "reload_sampling_params", "reset_sampling_state")


@dataclass(slots=True)
class DeviceMirror:
    """What the device holds after the last accepted call, as far as the host can know it.

    positions [B], -1 = no row; table [records, B, W], lane-local; sampling: parameters by row; tokens_valid: the
    device has the tokens to go on with; `transition`: why the next device-sampled step must bring everything, empty =
    it need not.
    """

    rows: int
    positions: Ints = field(init=False)
    table: Ints | None = None
    sampling: list[tuple[object, ...]] | None = None
    tokens_valid: bool = False
    transition: str = "it is the first decode"

    def __post_init__(self) -> None:
        self.positions = np.full(self.rows, -1, dtype=np.int64)

    def prefilled(self, slots: list[int]) -> None:
        """A prefill used the input buffers and the sampler."""
        self.positions[slots] = -1
        self.transition = "a prefill came since the last decode"

    def accepted(self, effective: Effective, *, sampled: bool) -> None:
        """A step was submitted."""
        self.positions = np.where(effective.positions >= 0, effective.positions + 1, -1)
        self.table = effective.table
        self.tokens_valid = sampled
        self.transition = "" if sampled else "the last step was sampled on the host"

    def permute(self, remap: Ints) -> None:
        self.positions = self.positions[remap]
        self.table = None if self.table is None else self.table[:, remap]
        self.sampling = None if self.sampling is None else [self.sampling[row] for row in remap]


@dataclass(frozen=True, slots=True)
class HostInputs:
    """What the call brings: positions [B], table [records, B, W]; whether it is sampled on the device, and traced."""

    positions: Ints
    table: Ints
    sampled: bool
    traced: bool


@dataclass(frozen=True, slots=True)
class Effective:
    """What the device will compute with: positions [B], page tables [records, B, W]; whether host inputs are read."""

    positions: Ints
    table: Ints
    reads_host: bool


def commands(where: Where, protocol: DecodeProtocol, arguments: DecodeArguments) -> dict[str, bool]:
    """The commands of the model's own protocol, all present, none of the other's. Raises ContractError."""
    sampled = arguments.sampled
    if protocol is DecodeProtocol.LEGACY:
        sent = [name for name in COMMANDS if getattr(arguments, name) is not None]
        where.require(not sent, CLAUSE, f"{', '.join(sent)} sent to an adapter of the legacy protocol")
        if arguments.reset_batch is None:
            where.require(
                not sampled, CLAUSE, "reset_batch is missing: a device-sampled step of a legacy adapter has it"
            )
            return {"reset_batch": False}
        return {"reset_batch": flag(where, CLAUSE, "reset_batch", arguments.reset_batch)}
    where.require(arguments.reset_batch is None, CLAUSE, "reset_batch sent to an adapter of decode protocol v1")
    missing = [name for name in COMMANDS if getattr(arguments, name) is None]
    where.require(not missing, CLAUSE, f"{', '.join(missing)} missing: protocol v1 has all four with every decode")
    given = {name: flag(where, CLAUSE, name, getattr(arguments, name)) for name in COMMANDS}
    where.require(
        not (given["reload_inputs"] and given["reload_page_table"]),
        CLAUSE,
        "reload_inputs and reload_page_table are both set: the first brings the page table along",
    )
    where.require(
        given["reload_inputs"] or not given["reset_sampling_state"],
        CLAUSE,
        "reset_sampling_state without reload_inputs",
    )
    where.require(
        sampled or not (given["reload_sampling_params"] or given["reset_sampling_state"]),
        CLAUSE,
        "reload_sampling_params or reset_sampling_state set, but the call has no sampling_params",
    )
    return given


def effective_inputs(
    where: Where, protocol: DecodeProtocol, mirror: DeviceMirror, given: dict[str, bool], host: HostInputs
) -> Effective:
    """Which positions and page table the device will use, after checking that no needed command is missing."""
    v1 = protocol is DecodeProtocol.V1
    name = "reload_inputs" if v1 else "reset_batch"
    reset = given[name]
    if v1 and not host.sampled:
        where.require(reset, CLAUSE, "reload_inputs is False, but the step is sampled on the host")
    if host.sampled and not reset:
        _require_steady(where, name, mirror, host)
    if v1:
        if reset:
            return Effective(host.positions, host.table, True)
        return Effective(mirror.positions, _v1_table(where, mirror, host.table, given["reload_page_table"]), False)
    if not host.sampled or not host.traced or not mirror.tokens_valid:
        return Effective(host.positions, host.table, True)
    return _legacy(mirror, host, reset)


def check_sampling(where: Where, mirror: DeviceMirror, given: dict[str, bool], params: Any, positions: Ints) -> None:
    """Protocol v1, device-sampled: the resident parameters are those of the call, and fresh after a transition."""
    reason = mirror.transition or ("the layout changed" if layout_changed(mirror, positions) else "")
    for name in ("reload_sampling_params", "reset_sampling_state"):
        where.require(given[name] or not reason, CLAUSE, f"{name} is False, but {reason}")
    if given["reload_sampling_params"] or mirror.sampling is None:
        return
    now = snapshot(params)
    live = np.flatnonzero(positions >= 0)
    changed = [row for row in live.tolist() if now[row] != mirror.sampling[row]]
    where.require(
        not changed, CLAUSE, f"the sampling parameters of rows {changed} changed, but reload_sampling_params is False"
    )


def layout_changed(mirror: DeviceMirror, positions: Ints) -> bool:
    """Whether other rows are live than at the last step."""
    return bool(((positions >= 0) != (mirror.positions >= 0)).any())


def _require_steady(where: Where, name: str, mirror: DeviceMirror, host: HostInputs) -> None:
    """Nothing happened since the last step that the device cannot know of."""
    positions = host.positions
    if name == "reload_inputs":
        where.require(host.traced, CLAUSE, f"{name} is False, but decode is not traced: nothing is resident")
    where.require(not mirror.transition, CLAUSE, f"{name} is False, but {mirror.transition}")
    resident = mirror.positions
    different = np.flatnonzero((positions >= 0) != (resident >= 0))
    where.require(
        not len(different), CLAUSE, f"{name} is False, but the layout changed: rows {different.tolist()} came or went"
    )
    behind = resident - positions
    other = np.flatnonzero((resident >= 0) & (behind != 0) & (behind != 1))
    where.require(
        not len(other),
        CLAUSE,
        f"{name} is False, but rows {other.tolist()} are not where the device is: another request",
    )


def _v1_table(where: Where, mirror: DeviceMirror, table: Ints, reload: bool) -> Ints:
    if reload or mirror.table is None:
        return table
    changed = np.flatnonzero((table != mirror.table).any(axis=(0, 2)) & (mirror.positions >= 0))
    where.require(
        not len(changed),
        CLAUSE,
        f"the page table of rows {changed.tolist()} changed, but neither reload_inputs nor reload_page_table is set",
    )
    return mirror.table


def _legacy(mirror: DeviceMirror, host: HostInputs, reset: bool) -> Effective:
    """The adapter keeps its own token and position where the host is level or one behind."""
    if not reset:
        return Effective(mirror.positions, host.table, False)
    ahead = mirror.positions - host.positions
    keep = (host.positions >= 0) & ((ahead == 0) | (ahead == 1))
    return Effective(np.where(keep, mirror.positions, host.positions), host.table, True)
