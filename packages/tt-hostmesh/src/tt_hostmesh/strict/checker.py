"""The contract checker of one model object: composes the rules, keeps what they need to know between calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from tt_hostmesh.adapter.arguments import DecodeArguments, PrefillArguments
from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.adapter.readback import DevicePayload
from tt_hostmesh.errors import HostMeshError
from tt_hostmesh.strict.breach import Limits, Where
from tt_hostmesh.strict.decode import DecodeWrites, check_padding, check_step, enter_step
from tt_hostmesh.strict.images import RopeBook, view_images
from tt_hostmesh.strict.layers import LayerRecord, records
from tt_hostmesh.strict.pages import check_apart
from tt_hostmesh.strict.parameters import check_abilities, check_parameters, penalised, snapshot
from tt_hostmesh.strict.plan import (
    DeviceMirror,
    Effective,
    HostInputs,
    check_sampling,
    commands,
    effective_inputs,
    layout_changed,
)
from tt_hostmesh.strict.prefill import enter_prefill, layer_view, view_prefill
from tt_hostmesh.strict.readback import ReadBack
from tt_hostmesh.strict.slots import EMPTY, SlotBook
from tt_hostmesh.strict.states import check_states
from tt_hostmesh.strict.values import Ints, int32_tensor, no_unknown, token_ids


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """A decode call that passed. `record` belongs into its command; `accept` is called once it is queued."""

    record: Callable[[Tensor, Tensor, Tensor], None]
    accept: Callable[[DevicePayload], None]


class ContractChecker:
    """Raises ContractError for a call that breaks the contract, before the device sees it.

    Calls come from one thread; `CheckedStep.record` runs in the device thread.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._records: list[LayerRecord] = []
        self._buffers: tuple[int, ...] = ()
        self._mirror = DeviceMirror(limits.rows)
        self._read_back = ReadBack()
        self._ropes = RopeBook(limits.rows) if limits.turns else None
        self._kv_cache: object = None

    @property
    def _book(self) -> SlotBook:
        """Of the first layer. Where sequences stand is the same in all."""
        return self._records[0].book

    def allocated(
        self,
        num_blocks: int,
        block_size: int,
        kv_cache: object,
        buffers: Sequence[int] = (0,),
        windows: Sequence[int | None] = (None,),
    ) -> None:
        """The cache exists now. buffers: where each layer lies that has a page table of its own; windows: theirs."""
        self._limits = replace(self._limits, num_blocks=num_blocks, block_size=block_size)
        pool = num_blocks * self._limits.placement.lanes
        self._records = records(self._limits.rows, pool, block_size, buffers, windows)
        self._buffers = tuple(buffers)
        self._kv_cache = kv_cache

    def look_ahead(self, tokens: int) -> None:
        """The model may write so many tokens ahead of a step: rows have blocks for them."""
        self._limits = replace(self._limits, lookahead=tokens)

    def warm_up(self, method: str, kv_cache: object, *, traced: bool, rows: int, width: int | None) -> None:
        """A warm-up call; `width` = columns of the page tables to come. Resident state is gone after it."""
        where = self._where(method)
        self._check_common(where, "1.4", kv_cache, traced)
        where.require(rows == self._limits.rows, "1.4", f"max_batch_size is {rows}, the model has {self._limits.rows}")
        if width is not None:
            self._check_width(where, "1.4", width)
        self._mirror = DeviceMirror(self._limits.rows)
        if self._ropes is not None:
            self._ropes.held[:] = 0

    def prefill(self, arguments: PrefillArguments, finish: Callable[[], None]) -> None:
        """A prefill call. `finish` waits for the device: cached tokens must be known before they are compared."""
        where = self._where("prefill_forward")
        no_unknown(where, "1.5", arguments)
        self._check_common(where, "1.5", arguments.kv_cache, arguments.enable_trace)
        view = view_prefill(where, self._limits, arguments)
        self._check_width(where, "1.5", view.pool.shape[1])
        if arguments.sampling_params is not None:
            check_parameters(where, arguments.sampling_params, len(view.slots))
            check_abilities(where, arguments.sampling_params, range(len(view.slots)), self._limits.top_logprobs)
        if self._limits.placeholder is not None and arguments.images is not None:
            view = view_images(where, self._limits.placeholder, view, arguments.images)
        tables = self._tables(where, "1.5", view.pool, arguments.page_tables_per_layer)[:, : len(view.slots)]
        views = [
            layer_view(where, self._limits, record, replace(view, pool=table))
            for record, table in zip(self._records, tables, strict=True)
        ]
        check_apart(where, "1.5", [one.pool for one in views], self._buffers)
        finish()
        if self._limits.stateful:
            check_states(where, self._book, self._records[0].ledger, views[0])
        for record, one in zip(self._records, views, strict=True):
            enter_prefill(where, record, one)
        self._mirror.prefilled(view.slots)

    def rope_deltas_known(self, slots: Sequence[int], deltas: Tensor) -> None:
        """A prefill answered with these deltas, int64 [n, 1]."""
        if self._ropes is not None:
            self._ropes.prefilled(list(slots), deltas)

    def decode(self, arguments: DecodeArguments) -> CheckedStep:
        """A decode call."""
        where = self._where("decode_forward")
        no_unknown(where, "1.6", arguments)
        self._check_common(where, "1.6", arguments.kv_cache, arguments.enable_trace)
        params = arguments.sampling_params
        if params is not None:
            check_parameters(where, params, self._limits.rows)
        given = commands(where, self._limits.protocol, arguments)
        self._remap(where, arguments.slot_remap)
        tokens, host = self._host_inputs(where, arguments)
        effective = effective_inputs(where, self._limits.protocol, self._mirror, given, host)
        if effective.reads_host or self._limits.protocol is DecodeProtocol.LEGACY:
            check_padding(where, tokens, host.positions, host.table)
            token_ids(where, "1.6", "tokens", tokens, self._limits.vocab_size)
        if params is not None:
            self._check_sampling(where, given, arguments, effective)
        if self._ropes is not None:
            live = np.flatnonzero(effective.positions >= 0)
            self._ropes.held = self._ropes.check(where, arguments.rope_deltas, live)
        lanes = np.arange(self._limits.rows)[:, None] // self._limits.placement.rows_per_lane
        pools = [np.where(table > 0, table + lanes * self._limits.num_blocks, 0) for table in effective.table]
        check_apart(where, "1.6", pools, self._buffers)
        writes = [
            check_step(where, self._limits, record, effective.positions, table)
            for record, table in zip(self._records, effective.table, strict=True)
        ]
        return CheckedStep(
            lambda rows, ids, at: self._record(writes, rows, ids, at),
            lambda payload: self._accept(writes, effective, given, arguments, payload),
        )

    def read(self, payload: object) -> None:
        self._read_back.read(self._where("read_decode_output"), payload)

    def process(self, payload: object, is_tokens: object) -> None:
        self._read_back.process(self._where("process_decode_output_host"), payload, is_tokens)

    def release(self, slot: object) -> None:
        """A request left its slot."""
        where = self._where("release_request")
        if type(slot) is not int or not 0 <= slot < self._limits.rows:
            raise where.breach("1.9", f"slot {slot!r}: slots are 0..{self._limits.rows - 1}")
        where.require(
            self._book.next[slot] != EMPTY, "1.9", f"slot {slot} has no request: released twice or never filled"
        )
        for record in self._records:
            record.book.leave(slot)
            record.book.releases_seen = True

    def _where(self, method: str) -> Where:
        return Where(self._limits.model, method)

    def _check_common(self, where: Where, clause: str, kv_cache: object, traced: object) -> None:
        self._read_back.require_read(where)
        if not self._records:
            raise where.breach("1.1", "allocate_kv_cache was not called yet")
        where.require(kv_cache is self._kv_cache, clause, "kv_cache is not the object that allocate_kv_cache returned")
        where.require(isinstance(traced, bool), clause, f"enable_trace must be True or False, not {traced!r}")
        where.require(
            not traced or self._limits.placement.mesh.parameters.trace_region_size,
            "3.2",
            "enable_trace is set, but the mesh was opened without a trace region",
        )

    def _check_width(self, where: Where, clause: str, width: int) -> None:
        where.require(
            0 < width <= self._limits.num_blocks,
            clause,
            f"page tables of {width} columns, the pool has {self._limits.num_blocks} blocks",
        )
        if not self._book.width:
            for record in self._records:
                record.book.resize(width)
        where.require(
            width == self._book.width, clause, f"page_table has {width} columns, before it had {self._book.width}"
        )

    def _remap(self, where: Where, value: Any) -> None:
        if value is None:
            return
        rows = self._limits.rows
        remap = int32_tensor(where, "1.6", "slot_remap", value, (rows,))
        where.require(
            (np.sort(remap) == np.arange(rows)).all(),
            "1.6",
            f"slot_remap {remap.tolist()} is no permutation of the slots",
        )
        lane = self._limits.placement.rows_per_lane
        where.require(
            (remap // lane == np.arange(rows) // lane).all(),
            "1.6",
            f"slot_remap {remap.tolist()} leaves a lane",
        )
        moved = (remap != np.arange(rows)).any()
        for record in self._records:
            record.book.permute(remap)
        self._mirror.permute(remap)
        if self._ropes is not None:
            self._ropes.permute(remap)
        if moved:
            self._mirror.transition = self._mirror.transition or "slot_remap moved rows"

    def _host_inputs(self, where: Where, arguments: DecodeArguments) -> tuple[Ints, HostInputs]:
        rows = self._limits.rows
        tokens = int32_tensor(where, "1.6", "tokens", arguments.tokens, (rows, 1))[:, 0]
        positions = int32_tensor(where, "1.6", "start_pos", arguments.start_pos, (rows,))
        table = int32_tensor(where, "1.6", "page_table", arguments.page_table, (rows, None))
        self._check_width(where, "1.6", table.shape[1])
        tables = self._tables(where, "1.6", table, arguments.page_tables_per_layer)
        return tokens, HostInputs(positions, tables, arguments.sampling_params is not None, arguments.enable_trace)

    def _tables(self, where: Where, clause: str, table: Ints, per_layer: Any) -> Ints:
        """int64 [records, n, W]: page_tables_per_layer, or page_table for all where layers have buffers of their own.

        With one table a layer n is the model's rows in every call (contract 1.5).
        """
        layers = len(self._records)
        if per_layer is None:
            shared = len(set(self._buffers)) < layers
            where.require(not shared, clause, "page_tables_per_layer is missing: layers of this model share buffers")
            return np.broadcast_to(table, (layers, *table.shape))
        if not isinstance(per_layer, list) or len(cast("list[Any]", per_layer)) != layers:
            raise where.breach(clause, f"page_tables_per_layer must be a list of {layers} tables, one for each layer")
        shape = (self._limits.rows, table.shape[1])
        name = "page_tables_per_layer"
        tables = [int32_tensor(where, clause, name, one, shape) for one in cast("list[Any]", per_layer)]
        first = any((one[: len(table)] == table).all() for one in tables)
        where.require(first, clause, f"page_table is none of {name}: it is the first group's")
        return np.stack(tables)

    def _check_sampling(
        self, where: Where, given: dict[str, bool], arguments: DecodeArguments, effective: Effective
    ) -> None:
        live = np.flatnonzero(effective.positions >= 0).tolist()
        check_abilities(where, arguments.sampling_params, live, self._limits.top_logprobs)
        if self._limits.protocol is DecodeProtocol.V1:
            check_sampling(where, self._mirror, given, arguments.sampling_params, effective.positions)
            reset = given["reset_sampling_state"]
        else:
            reset = given["reset_batch"]
            stale = layout_changed(self._mirror, effective.positions)
            where.require(reset or not stale, "1.6", "reset_batch is False, but the layout changed")
        needed = reset and penalised(arguments.sampling_params, live)
        self._check_history(where, "prompt_tokens", arguments.prompt_tokens, needed=needed)
        self._check_history(where, "output_tokens", arguments.output_tokens, needed=needed)

    def _check_history(self, where: Where, name: str, value: object, *, needed: bool) -> None:
        if value is None:
            where.require(not needed, "1.6", f"a penalty is active and sampler state is reset, but {name} is missing")
            return
        history = int32_tensor(where, "1.6", name, value, (self._limits.rows, None))
        if needed:
            token_ids(where, "1.6", name, history[history != -1], self._limits.vocab_size)

    def _record(self, writes: list[DecodeWrites], rows: Tensor, tokens: Tensor, positions: Tensor) -> None:
        """In the device thread: enter the tokens, and make sure that device and checker speak of the same step."""
        first = writes[0]
        same = np.array_equal(rows.numpy(), first.rows) and np.array_equal(positions.numpy(), first.positions)
        if not same:
            raise HostMeshError(
                f"the device computes rows {rows.tolist()} at {positions.tolist()}, the checker expected "
                f"{first.rows.tolist()} at {first.positions.tolist()}: a fault of the host mesh itself"
            )
        for record, one in zip(self._records, writes, strict=True):
            record.ledger.record_decode(one.blocks, one.offsets, tokens.numpy(), one.before, record.root)

    def _accept(
        self,
        writes: list[DecodeWrites],
        effective: Effective,
        given: dict[str, bool],
        arguments: DecodeArguments,
        payload: DevicePayload,
    ) -> None:
        for record, one in zip(self._records, writes, strict=True):
            enter_step(record, one)
        self._mirror.accepted(effective, sampled=arguments.sampled)
        if given.get("reload_sampling_params"):
            self._mirror.sampling = snapshot(arguments.sampling_params)
        if not arguments.read_from_device:
            self._read_back.submitted(payload)
