"""The runner: rows, page tables, samplers, model adapter and in-flight queue, composed into a step."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tt_worker.adapter import ModelAdapter
from tt_worker.failure import StepFailed, StepGuard, TimeLimit
from tt_worker.inflight import InFlight, InFlightQueue
from tt_worker.inputs import DecodeBuffers, DecodeInputs, prefill_inputs
from tt_worker.methods import AdapterError
from tt_worker.outcome import Outcome, picked_logprobs, picked_tokens
from tt_worker.pages import PageTables
from tt_worker.prefills import Prefills
from tt_worker.reload import DecodeSituation, ReloadPlanner
from tt_worker.request import RequestState
from tt_worker.rows import RowTable
from tt_worker.sampling import GrammarMask, RowSamplers
from tt_worker.step import NOTHING, Admission, StepRequest, StepResult
from tt_worker.steplog import StepLog

logger = logging.getLogger("vllm.tt.runner")

State = RequestState[Any]

_DECODE = "a decode step"


class StepError(RuntimeError):
    """The engine asked for a step that cannot be run. A fault in the scheduler or in this package, never in a
    request."""


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """alignment: multiple that first positions of a prefill are rounded down to; overlap: submit a step before the
    last is read; scheduler_ends_failed: the engine ends a request that StepResult.failed names."""

    alignment: int = 32
    overlap: bool = True
    depth: int = 2
    scheduler_ends_failed: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of a step. rows: their rows; final: whether a token comes out (False: a chunk that does not end
    the prompt)."""

    ids: list[str]
    states: list[State]
    rows: list[int]
    final: list[bool]


class Runner:
    """`execute` submits a step; `sample` answers with its result, now or when asked.

    rows, pages and samplers are one set for all topologies; a lane is a range of rows.
    """

    def __init__(
        self,
        config: RunnerConfig,
        adapter: ModelAdapter,
        rows: RowTable,
        pages: PageTables,
        samplers: RowSamplers,
        planner: ReloadPlanner,
        log: StepLog,
        limit: TimeLimit | None = None,
    ) -> None:
        self._config = config
        self._limit = limit or TimeLimit()
        self._prefills = Prefills(self._limit.enter_thread)
        self._guard = StepGuard()
        self._adapter = adapter
        self._rows = rows
        self._pages = pages
        self._samplers = samplers
        self._planner = planner
        self._log = log
        self._requests: dict[str, State] = {}
        self._buffers = DecodeBuffers(rows.capacity)
        self._queue: InFlightQueue[StepResult] = InFlightQueue(config.depth)
        self._unsampled: deque[Callable[[GrammarMask | None], InFlight[StepResult]]] = deque()
        self._hosted: list[tuple[Batch, InFlight[StepResult]]] = []
        # Rows change in the engine's thread, results are applied in whichever asks.
        self._rows_lock = threading.Lock()
        self._logits_unasked = False
        self._decoding: list[State] = []
        self._tenancy = 0

    def row_of(self, request_id: str) -> int:
        return self._rows.row_of(request_id)

    def execute(self, step: StepRequest) -> StepResult | None:
        """Update the rows and submit the step. None: call `sample` for the result; otherwise there is nothing to
        sample.

        Raises:
            StepFailed: this step failed, or one before it did.
        """
        return self._guard.run(list(step.scheduled), lambda: self._execute(step))

    def _execute(self, step: StepRequest) -> StepResult | None:
        self._sample_leaving(step)
        with self._rows_lock:
            self._change_rows(step)
        if not step.scheduled:
            return NOTHING
        ids = list(step.scheduled)
        states = [self._state(request_id) for request_id in ids]
        self._check_progress(step, states)
        if self._pages.slide:
            for state in states:
                self._pages.advance(state.row, state.computed)
        prefilling = sum(state.prefilling for state in states)
        if prefilling == len(states):
            self._prefill(ids, states, list(step.scheduled.values()))
        elif prefilling == 0:
            self._decode(ids, states, step)
        else:
            raise StepError(f"a step mixes {prefilling} prefill and {len(states) - prefilling} decode requests: {ids}")
        return None

    def sample(self, grammar: GrammarMask | None = None) -> InFlight[StepResult] | None:
        """The result of the oldest step that `execute` submitted; None when there is none (its execute failed).

        It raises StepFailed when it is asked, if that step failed or one before it did.
        """
        return self._unsampled.popleft()(grammar) if self._unsampled else None

    @property
    def failure(self) -> StepFailed | None:
        """Why this worker cannot run another step."""
        return self._guard.failure

    def drain(self) -> None:
        """Wait for everything that was submitted."""
        self._queue.drain()

    def close(self) -> None:
        """Wait for the device and let the model drop its captures. A step that failed does not keep the mesh open."""
        try:
            self._queue.drain()
        except Exception as error:
            logger.warning("a step in flight failed while the worker was closing: %s", error)
        self._prefills.close()
        self._adapter.release_captures()

    # Rows

    def _sample_leaving(self, step: StepRequest) -> None:
        """The host samples by row: a step in flight is sampled before one of its requests gives its row up."""
        self._hosted = [(batch, flight) for batch, flight in self._hosted if not flight.done]
        going = {*step.leaving, *(admission.request_id for admission in step.admissions)}
        if going and not all(going.isdisjoint(batch.ids) for batch, _ in self._hosted):
            self._queue.drain()

    def _change_rows(self, step: StepRequest) -> None:
        for request_id in step.leaving:
            self._leave(request_id)
        for admission in step.admissions:
            self._admit(admission)
        for request_id, blocks in step.grown.items():
            self._pages.append(self._rows.row_of(request_id), blocks)

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
        )
        self._pages.replace(row, admission.block_ids)
        self._samplers.admit(state)
        self._requests[admission.request_id] = state
        self._tenancy += 1

    def _leave(self, request_id: str) -> None:
        state = self._requests.pop(request_id, None)
        if state is None:
            return
        state.alive = False
        self._prefills.call(lambda: self._guard.run([request_id], lambda: self._adapter.release(state.row)))
        row = self._rows.release(request_id)
        self._pages.clear(row)
        self._samplers.release(state)
        self._tenancy += 1

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

    # Prefill

    def _prefill(self, ids: list[str], states: list[State], counts: list[int]) -> None:
        rows = [state.row for state in states]
        final = [s.computed + n >= s.prefill_end for s, n in zip(states, counts, strict=True)]
        batch = Batch(ids, states, rows, final)
        placement = self._samplers.place_prefill(states, final)
        inputs = prefill_inputs(states, counts, self._pages.prefill(rows), self._config.alignment)
        self._planner.prefilled()
        self._decoding = []
        sampling = self._samplers.device.packed(rows) if placement.device else None
        prefill = self._adapter.prefill
        read = self._submit_prefill(lambda: self._limit.call("a prefill", lambda: prefill(inputs, sampling)))
        for state, count in zip(states, counts, strict=True):
            state.computed += count
        sampled = "device" if placement.device else "host" if any(final) else None
        because = placement.names if sampled == "host" else ()
        self._log.step("prefill", requests=len(ids), tokens=sum(counts), sampled=sampled, because=because)
        self._promise(batch, read, list(range(len(ids))), on_device=placement.device)

    def _submit_prefill(self, call: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """The model's prefill blocks. With overlap it does so elsewhere, and the engine schedules the next step."""
        if self._config.overlap:
            return self._prefills.submit(call)
        outcome = call()
        return lambda: outcome

    # Decode

    def _decode(self, ids: list[str], states: list[State], step: StepRequest) -> None:
        if sum(step.scheduled.values()) != len(ids):
            raise StepError(f"a decode step computes one token a request: {dict(step.scheduled)}")
        # In the order of their rows, so that the logits of a full batch are sampled where they lie.
        states = sorted(states, key=_row)
        ids = [state.request_id for state in states]
        rows = [state.row for state in states]
        batch = Batch(ids, states, rows, [True] * len(ids))
        placement = self._samplers.place_decode(rows)
        on_device = placement.device
        penalised = on_device and self._samplers.device.any_penalised(rows)
        lingering = self._lingering(states) if on_device else []
        now = self._situation([*states, *lingering], on_device=on_device)
        plan = self._planner.plan(now)
        if lingering and plan.reload_inputs:
            lingering, now = [], self._situation(states, on_device=on_device)
        inputs = self._decode_inputs([*states, *lingering])
        sampling = self._samplers.device.view() if on_device else None
        if plan.reload_inputs or not self._config.overlap:
            # The host's tokens are needed, so they must all be known. Histories are looked at in no other step.
            # Nothing else of the step waits for them: the device idles from here to its submit.
            self._queue.drain()
            inputs.tokens[rows, 0] = [state.token_at(state.computed) for state in states]
        self._prefills.wait()
        histories = self._samplers.histories.view() if penalised else None
        submit = self._adapter.submit_decode
        outcome = self._limit.call(_DECODE, lambda: submit(inputs, sampling, plan, histories))
        self._planner.accept(now)
        self._decoding = [] if lingering else states
        for state in states:
            state.computed += 1
        self._log.step(
            "decode",
            requests=len(ids),
            tokens=len(ids),
            sampled="device" if on_device else "host",
            because=placement.names,
            reload=plan.reload_inputs,
            ahead=len(self._queue),
        )
        self._promise(batch, lambda: self._limit.call(_DECODE, outcome), rows, on_device=on_device)

    def _lingering(self, states: list[State]) -> list[State]:
        """Requests of the last step that are over and stay in the batch for one step more, whose result nobody takes.

        Their last token is in flight, so the engine did not schedule them, and they have not left. Without them the
        layout would change twice for one request, and each change waits for the device. They do what a request does
        that ends by a stop token: compute its next position, in a block of its own.
        """
        if not self._config.overlap or len(self._decoding) <= len(states):
            return []
        scheduled = {state.row for state in states}
        gone = [state for state in self._decoding if state.row not in scheduled]
        same = len(gone) + len(states) == len(self._decoding)
        over = all(state.alive and state.over and self._pages.hold(state.row, state.computed) for state in gone)
        return gone if same and over else []

    def _situation(self, states: list[State], *, on_device: bool) -> DecodeSituation:
        return DecodeSituation(
            layout=(self._tenancy, frozenset([state.row for state in states])),
            pages=self._pages.versions,
            sampling=self._samplers.version,
            on_device=on_device,
        )

    def _decode_inputs(self, states: list[State]) -> DecodeInputs:
        rows = [state.row for state in states]
        index: NDArray[np.int64] = np.array(rows, dtype=np.int64)
        positions = np.array([state.computed for state in states], dtype=np.int32)
        tokens, start_pos = self._buffers.fill(index, positions, None)
        return DecodeInputs(tokens, start_pos, self._pages.decode(rows))

    def _apply_device(self, batch: Batch, outcome: Outcome, lines: list[int]) -> StepResult:
        """Take line lines[i] of what the device sampled for request i."""
        tokens = picked_tokens(outcome, lines)
        asked = [state.logprobs for state in batch.states]
        if all(count is None for count in asked):
            return self._apply(batch, tokens, None)
        given = picked_logprobs(outcome, lines)
        return self._apply(batch, tokens, self._samplers.host.device_logprobs(tokens, given, asked))

    # Results

    def _promise(self, batch: Batch, read: Callable[[], Outcome], lines: list[int], *, on_device: bool) -> None:
        """A result for when it is asked for: line lines[i] of what the model answers belongs to request i."""

        def sample(grammar: GrammarMask | None) -> InFlight[StepResult]:
            # The engine writes its next masks over these.
            mask = None if grammar is None else (np.array(grammar[0]), grammar[1])
            flight = self._queue.submit(
                lambda: self._guard.run(batch.ids, lambda: self._finish(batch, read, lines, mask, on_device))
            )
            if not on_device or self._logits_unasked:
                self._hosted.append((batch, flight))
            return flight

        self._unsampled.append(sample)

    def _finish(
        self, batch: Batch, read: Callable[[], Outcome], lines: list[int], grammar: GrammarMask | None, on_device: bool
    ) -> StepResult:
        """Wait for the step and take its tokens; with logits, sample. A model may answer with logits unasked."""
        outcome = read()
        with self._rows_lock:
            if on_device and outcome.tokens is not None:
                return self._apply_device(batch, outcome, lines)
            self._logits_unasked |= on_device
            return self._sample_host(batch, _select(outcome.logits, lines), grammar)

    def _sample_host(self, batch: Batch, logits: Any, grammar: GrammarMask | None) -> StepResult:
        """Sample row i of `logits` for batch.rows[i]."""
        if not any(batch.final):
            return StepResult(batch.ids, [[] for _ in batch.ids])
        if logits is None:
            raise AdapterError("the model returned tokens although logits were asked for (tt-metal contract 1.5, 1.6)")
        sample = self._samplers.host.sample(logits, batch.rows, advance=batch.final, grammar=grammar)
        return self._apply(batch, list(sample.token_ids), sample.logprobs, self._failures(batch, sample.failed))

    def _failures(self, batch: Batch, failed: Mapping[int, str]) -> dict[str, str]:
        """Requests of this step that must not go on.

        A request that ended while this step was in flight has no mask either, and only the scheduler can tell: it ends
        those that live. Where it cannot, a failed request that comes back ends the engine.
        """
        if not self._config.scheduler_ends_failed:
            for state in batch.states:
                if state.failure is not None:
                    raise StepError(state.failure)
        for i, why in failed.items():
            batch.states[i].failure = why
        return {batch.ids[i]: why for i, why in failed.items()}

    def _apply(
        self, batch: Batch, tokens: list[int], logprobs: Any, failed: Mapping[str, str] = NOTHING.failed
    ) -> StepResult:
        """Append the tokens to their requests' histories. States, not rows: a row may have a new tenant by now.

        A failed request keeps its token here, because a step that was scheduled before the engine knew needs it.
        """
        vocab_size = self._adapter.vocab_size
        if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
            raise AdapterError(f"sampled token ids leave the vocabulary of {vocab_size}: {tokens}")
        for state, token, final in zip(batch.states, tokens, batch.final, strict=True):
            if final:
                self._samplers.record(state, token)
        ids = [[token] if final else [] for token, final in zip(tokens, batch.final, strict=True)]
        for request_id in failed:
            ids[batch.ids.index(request_id)] = []
        return StepResult(batch.ids, ids, logprobs, failed)


def _row(state: State) -> int:
    return state.row


def _select(logits: Any, rows: list[int]) -> Any:
    """The batch's rows out of all B; a view when they are the first ones in order."""
    if logits is None:
        return None
    return logits[: len(rows)] if rows == list(range(len(rows))) else logits[rows]
