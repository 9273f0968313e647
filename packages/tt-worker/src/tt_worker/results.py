"""From what the model answered to tokens of requests: read back, sampled where the host samples, applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tt_worker.failure import StepGuard
from tt_worker.inflight import InFlight, InFlightQueue
from tt_worker.methods import AdapterError
from tt_worker.outcome import Outcome, picked_logprobs, picked_tokens
from tt_worker.sampling import GrammarMask
from tt_worker.step import NOTHING, StepRequest, StepResult
from tt_worker.tenants import State, StepError, Tenants


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of a step. rows: their rows; final: whether a token comes out (False: a chunk that does not end
    the prompt); logprobs: how many each asks for, None when none does; histories: their live output lists, when all
    that a token needs is to be appended to one: None when a request gets none, or has a penalty."""

    ids: list[str]
    states: list[State]
    rows: list[int]
    final: list[bool]
    logprobs: list[int | None] | None
    histories: list[list[int]] | None

    @staticmethod
    def of(states: list[State], rows: list[int], final: list[bool]) -> Batch:
        asked = [state.logprobs for state in states]
        wanted = any(count is not None for count in asked)
        plain = all(final) and not any(state.penalised for state in states)
        return Batch(
            [state.request_id for state in states],
            states,
            rows,
            final,
            asked if wanted else None,
            [state.output for state in states] if plain else None,
        )


class Results:
    """Finishes submitted steps, in order, each once, in whichever thread asks.

    scheduler_ends_failed: the engine ends a request that StepResult.failed names
    longest: tokens of the longest sequence; a block is clipped there
    on_block: told of each step that answered with blocks, with the tokens that are left of them
    """

    def __init__(
        self,
        tenants: Tenants,
        guard: StepGuard,
        vocab_size: int,
        *,
        depth: int,
        scheduler_ends_failed: bool,
        longest: int | None = None,
        on_block: Callable[[int], None] | None = None,
    ) -> None:
        self.queue: InFlightQueue[StepResult] = InFlightQueue(depth)
        self._tenants = tenants
        self._samplers = tenants.samplers
        self._guard = guard
        self._vocab_size = vocab_size
        self._scheduler_ends_failed = scheduler_ends_failed
        self._hosted: list[tuple[Batch, InFlight[StepResult]]] = []
        self._logits_unasked = False
        self._longest = longest
        self._on_block = on_block

    def settle(self, step: StepRequest) -> None:
        """The host samples by row: a step in flight is sampled before one of its requests gives its row up."""
        if not self._hosted:
            return
        self._hosted = [(batch, flight) for batch, flight in self._hosted if not flight.done]
        leaving = {*step.leaving, *(admission.request_id for admission in step.admissions)}
        if leaving and not all(leaving.isdisjoint(batch.ids) for batch, _ in self._hosted):
            self.queue.drain()

    def promise(
        self, batch: Batch, read: Callable[[], Outcome], lines: list[int], *, on_device: bool
    ) -> Callable[[GrammarMask | None], InFlight[StepResult]]:
        """A result for when it is asked for: line lines[i] of what the model answers belongs to request i.

        read: waits for the step; on_device: tokens were asked for
        """

        def sample(grammar: GrammarMask | None) -> InFlight[StepResult]:
            # The engine writes its next masks over these.
            mask = None if grammar is None else (np.array(grammar[0]), grammar[1])
            flight = self.queue.submit(
                lambda: self._guard.run(batch.ids, lambda: self._finish(batch, read, lines, mask, on_device))
            )
            if not on_device or self._logits_unasked:
                self._hosted.append((batch, flight))
            return flight

        return sample

    def _finish(
        self, batch: Batch, read: Callable[[], Outcome], lines: list[int], grammar: GrammarMask | None, on_device: bool
    ) -> StepResult:
        """Wait for the step and take its tokens; with logits, sample. A model may answer with logits unasked."""
        outcome = read()
        with self._tenants.lock:
            if outcome.rope_deltas is not None:
                for state, line in zip(batch.states, lines, strict=True):
                    state.rope_delta = outcome.rope_deltas[line]
            if outcome.width > 1:
                return self._apply_blocks(batch, outcome, lines)
            if on_device and outcome.tokens is not None:
                return self._apply_device(batch, outcome, lines)
            self._logits_unasked |= on_device
            return self._sample_host(batch, _select(outcome.logits, lines), grammar)

    def _apply_device(self, batch: Batch, outcome: Outcome, lines: list[int]) -> StepResult:
        """Take line lines[i] of what the device sampled for request i."""
        tokens = picked_tokens(outcome, lines)
        asked = batch.logprobs
        if asked is None:
            return self._apply(batch, tokens, None)
        given = picked_logprobs(outcome, lines)
        return self._apply(batch, tokens, lambda: self._samplers.host.device_logprobs(tokens, given, asked))

    def _apply_blocks(self, batch: Batch, outcome: Outcome, lines: list[int]) -> StepResult:
        """Take block lines[i] for request i, up to the end of the longest sequence: nothing real lies beyond."""
        tokens, width = picked_tokens(outcome, list(range(len(lines) * outcome.width))), outcome.width
        blocks: list[list[int]] = []
        for state, line in zip(batch.states, lines, strict=True):
            block = tokens[line * width : (line + 1) * width]
            if self._longest is not None:
                block = block[: max(0, self._longest - len(state.prompt) - len(state.output))]
            self._check_vocabulary(block)
            self._samplers.record([state] * len(block), block, [True] * len(block))
            blocks.append(block)
        if self._on_block is not None:
            self._on_block(sum(map(len, blocks)))
        return StepResult(batch.ids, blocks)

    def _check_vocabulary(self, tokens: list[int]) -> None:
        vocab_size = self._vocab_size
        if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
            raise AdapterError(f"sampled token ids leave the vocabulary of {vocab_size}: {tokens}")

    def _sample_host(self, batch: Batch, logits: Any, grammar: GrammarMask | None) -> StepResult:
        """Sample row i of `logits` for batch.rows[i]."""
        if not any(batch.final):
            return StepResult(batch.ids, [[] for _ in batch.ids])
        if logits is None:
            raise AdapterError("the model returned tokens although logits were asked for (tt-metal contract 1.5, 1.6)")
        sample = self._samplers.host.sample(logits, batch.rows, advance=batch.final, grammar=grammar)
        return self._apply(batch, list(sample.token_ids), sample.late, self._failures(batch, sample.failed))

    def _failures(self, batch: Batch, failed: Mapping[int, str]) -> dict[str, str]:
        """Requests of this step that must not go on.

        A request that ended while this step was in flight has no mask either, and only the scheduler can tell: it ends
        those that live. Where it cannot, a failed request that comes back ends the engine.
        """
        if not self._scheduler_ends_failed:
            for state in batch.states:
                if state.failure is not None:
                    raise StepError(state.failure)
        for i, why in failed.items():
            batch.states[i].failure = why
        return {batch.ids[i]: why for i, why in failed.items()}

    def _apply(
        self,
        batch: Batch,
        tokens: list[int],
        late: Callable[[], Any] | None,
        failed: Mapping[str, str] = NOTHING.failed,
    ) -> StepResult:
        """Append the tokens to their requests' histories. States, not rows: a row may have a new tenant by now.

        A failed request keeps its token here, because a step that was scheduled before the engine knew needs it.
        """
        self._check_vocabulary(tokens)
        self._samplers.record(batch.states, tokens, batch.final, batch.histories)
        if batch.histories is not None:
            ids = [[token] for token in tokens]
        else:
            ids = [[token] if final else [] for token, final in zip(tokens, batch.final, strict=True)]
        for request_id in failed:
            ids[batch.ids.index(request_id)] = []
        return StepResult(batch.ids, ids, late, failed)


def _select(logits: Any, rows: list[int]) -> Any:
    """The batch's rows out of all B; a view when they are the first ones in order."""
    if logits is None:
        return None
    return logits[: len(rows)] if rows == list(range(len(rows))) else logits[rows]
