"""Who sits in which row, and everything that a row has: blocks, sampling parameters, history."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tt_worker.pages import PageTables
from tt_worker.request import RequestState
from tt_worker.rows import RowTable
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest

State = RequestState[Any]


class StepError(RuntimeError):
    """The engine asked for a step that cannot be run. A fault in the scheduler or in this package, never in a
    request."""


class Tenants:
    """Requests in their rows. One set for all topologies; a lane is a range of rows.

    version: changes when a request comes or goes
    lock:    rows change in the engine's thread, results are applied in whichever asks
    release: told of each request that goes, with its row, before the row is free
    """

    def __init__(
        self, rows: RowTable, pages: PageTables, samplers: RowSamplers, release: Callable[[str, int], None]
    ) -> None:
        self.pages = pages
        self.samplers = samplers
        self.lock = threading.Lock()
        self.version = 0
        self._rows = rows
        self._release = release
        self._requests: dict[str, State] = {}

    def row_of(self, request_id: str) -> int:
        return self._rows.row_of(request_id)

    def change(self, step: StepRequest) -> None:
        """Those who leave go first, so that their rows are free for those who come."""
        with self.lock:
            for request_id in step.leaving:
                self._leave(request_id)
            for admission in step.admissions:
                self._admit(admission)
            for request_id, blocks in step.grown.items():
                self.pages.append(self._rows.row_of(request_id), blocks)

    def states(self, request_ids: Sequence[str]) -> list[State]:
        """Requests in their rows. Raises StepError for one that was never admitted."""
        return [self._state(request_id) for request_id in request_ids]

    def follow(self, step: StepRequest, states: Sequence[State]) -> None:
        """Before a step computes these requests.

        Raises:
            StepError: one is further or less far than the engine counts.
        """
        self._check_progress(step, states)
        if self.pages.slide:
            for state in states:
                self.pages.advance(state.row, state.computed)

    def _admit(self, admission: Admission) -> None:
        if admission.request_id in self._requests:
            self._leave(admission.request_id)
        row = self._rows.assign(admission.request_id, admission.lane)
        output = list(admission.output)
        state: State = RequestState(
            request_id=admission.request_id,
            row=row,
            prompt=admission.prompt,
            output=output,
            prefill_end=len(admission.prompt) + len(output),
            computed=admission.computed,
            params=admission.params,
            ends_at=admission.ends_at,
            images=admission.images,
        )
        self.pages.replace(row, admission.block_ids)
        self.samplers.admit(state)
        self._requests[admission.request_id] = state
        self.version += 1

    def _leave(self, request_id: str) -> None:
        state = self._requests.pop(request_id, None)
        if state is None:
            return
        state.alive = False
        self._release(request_id, state.row)
        row = self._rows.release(request_id)
        self.pages.clear(row)
        self.samplers.release(state)
        self.version += 1

    def _state(self, request_id: str) -> State:
        try:
            return self._requests[request_id]
        except KeyError:
            raise StepError(f"request {request_id!r} is scheduled and was never admitted") from None

    @staticmethod
    def _check_progress(step: StepRequest, states: Sequence[State]) -> None:
        """The engine and this worker must agree on what is computed: anything else corrupts a cache silently."""
        computed = step.computed
        for state in states:
            expected = computed.get(state.request_id)
            if expected is not None and expected != state.computed:
                raise StepError(
                    f"request {state.request_id!r}: the engine counts {expected} computed tokens, "
                    f"the worker {state.computed}"
                )
