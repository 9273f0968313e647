"""The runner: tenants, step inputs, reload plan, model adapter and results, composed into a step."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from tt_worker.adapter import ModelAdapter
from tt_worker.decoding import DecodeGroup
from tt_worker.failure import StepFailed, StepGuard, TimeLimit
from tt_worker.inflight import InFlight
from tt_worker.inputs import DecodeBuffers, DecodeInputs, prefill_inputs
from tt_worker.media import rope_list
from tt_worker.outcome import Outcome
from tt_worker.pages import PageTables
from tt_worker.prefills import Prefills
from tt_worker.reload import DecodeSituation, ReloadPlanner
from tt_worker.results import Batch, Results
from tt_worker.rows import RowTable
from tt_worker.sampling import GrammarMask, RowSamplers
from tt_worker.step import NOTHING, StepRequest, StepResult
from tt_worker.steplog import StepLog
from tt_worker.tenants import State, StepError, Tenants

logger = logging.getLogger("vllm.tt.runner")

_DECODE = "a decode step"


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """alignment: multiple that first positions of a prefill are rounded down to; overlap: submit a step before the
    last is read; scheduler_ends_failed: the engine ends a request that StepResult.failed names; longest,
    on_block: see Results."""

    alignment: int = 32
    overlap: bool = True
    depth: int = 2
    scheduler_ends_failed: bool = True
    longest: int | None = None
    on_block: Callable[[int], None] | None = None


class Runner:
    """`execute` submits a step; `sample` answers with its result, now or when asked."""

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
        self._pages = pages
        self._samplers = samplers
        self._planner = planner
        self._log = log
        self._tenants = Tenants(rows, pages, samplers, self._release)
        self._results = Results(
            self._tenants,
            self._guard,
            adapter.vocab_size,
            depth=config.depth,
            scheduler_ends_failed=config.scheduler_ends_failed,
            longest=config.longest,
            on_block=config.on_block,
        )
        self._queue = self._results.queue
        self._buffers = DecodeBuffers(rows.capacity)
        self._unsampled: deque[Callable[[GrammarMask | None], InFlight[StepResult]]] = deque()
        self._decoding: list[State] = []
        self._group: DecodeGroup | None = None
        self._turned: Hashable = None  # the layout whose rope deltas the model has

    def row_of(self, request_id: str) -> int:
        return self._tenants.row_of(request_id)

    def execute(self, step: StepRequest) -> StepResult | None:
        """Update the rows and submit the step. None: call `sample` for the result; otherwise there is nothing to
        sample.

        Raises:
            StepFailed: this step failed, or one before it did.
        """
        return self._guard.run(list(step.scheduled), lambda: self._execute(step))

    def _execute(self, step: StepRequest) -> StepResult | None:
        self._results.settle(step)
        self._tenants.change(step)
        if not step.scheduled:
            return NOTHING
        asked = list(step.scheduled)
        if self._group is None or not self._group.is_of(self._tenants.version, asked):
            states = self._tenants.states(asked)
            prefilling = sum(state.prefilling for state in states)
            if 0 < prefilling < len(states):
                raise StepError(
                    f"a step mixes {prefilling} prefill and {len(states) - prefilling} decode requests: {asked}"
                )
            if prefilling:
                self._group = None
                self._tenants.follow(step, states)
                self._prefill(states, list(step.scheduled.values()))
                return None
            self._group = DecodeGroup.of(self._tenants.version, asked, states)
        self._tenants.follow(step, self._group.batch.states)
        self._decode(self._group, step)
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

    def _release(self, request_id: str, row: int) -> None:
        self._prefills.call(lambda: self._guard.run([request_id], lambda: self._adapter.release(row)))

    # Prefill

    def _prefill(self, states: list[State], counts: list[int]) -> None:
        ids = [state.request_id for state in states]
        rows = [state.row for state in states]
        final = [s.computed + n >= s.prefill_end for s, n in zip(states, counts, strict=True)]
        batch = Batch.of(states, rows, final)
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
        self._unsampled.append(self._results.promise(batch, read, list(range(len(ids))), on_device=placement.device))

    def _submit_prefill(self, call: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """The model's prefill blocks. With overlap it does so elsewhere, and the engine schedules the next step."""
        if self._config.overlap:
            return self._prefills.submit(call)
        outcome = call()
        return lambda: outcome

    # Decode

    def _decode(self, group: DecodeGroup, step: StepRequest) -> None:
        batch = group.batch
        states, rows = batch.states, batch.rows
        if sum(step.scheduled.values()) != len(states):
            raise StepError(f"a decode step computes one token a request: {dict(step.scheduled)}")
        placement = self._samplers.place_decode(rows)
        on_device = placement.device
        penalised = on_device and self._samplers.device.any_penalised(rows)
        lingering = self._lingering(states) if on_device else []
        everyone = group.with_others(lingering)
        now = self._situation(everyone, on_device=on_device)
        plan = self._planner.plan(now)
        if lingering and plan.reload_inputs:
            lingering, everyone = [], group
            now = self._situation(group, on_device=on_device)
        inputs = self._decode_inputs(everyone)
        sampling = self._samplers.device.view() if on_device else None
        if plan.reload_inputs or not self._config.overlap:
            # The host's tokens are needed, so they must all be known. Histories are looked at in no other step.
            # Nothing else of the step waits for them: the device idles from here to its submit.
            self._queue.drain()
            inputs.tokens[rows, 0] = [state.token_at(state.computed) for state in states]
        self._prefills.wait()
        histories = self._samplers.histories.view() if penalised else None
        deltas = None
        if self._adapter.mrope and now.layout != self._turned:
            deltas = rope_list({state.row: state.rope_delta for state in everyone.batch.states})
        submit = self._adapter.submit_decode
        outcome = self._limit.call(_DECODE, lambda: submit(inputs, sampling, plan, histories, deltas))
        self._planner.accept(now)
        self._turned = now.layout
        self._decoding = [] if lingering else states
        group.advance()
        self._log.step(
            "decode",
            requests=len(rows),
            tokens=len(rows),
            sampled="device" if on_device else "host",
            because=placement.names,
            reload=plan.reload_inputs,
            ahead=len(self._queue),
        )
        read = partial(self._limit.call, _DECODE, outcome)
        self._unsampled.append(self._results.promise(batch, read, rows, on_device=on_device))

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

    def _situation(self, group: DecodeGroup, *, on_device: bool) -> DecodeSituation:
        return DecodeSituation(
            layout=(group.version, group.rows),
            pages=self._pages.versions,
            sampling=self._samplers.version,
            on_device=on_device,
        )

    def _decode_inputs(self, group: DecodeGroup) -> DecodeInputs:
        tokens, start_pos = self._buffers.fill(group.batch.rows, group.positions)
        return DecodeInputs(tokens, start_pos, self._pages.decode(group.batch.rows))
