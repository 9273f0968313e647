"""The runner of a model that puts out blocks of tokens (tt-metal contract 1.12)."""

from __future__ import annotations

from functools import partial
from typing import Any

from tt_scheduler.blocks import BlockOutput
from tt_worker.decoding import DecodeGroup
from tt_worker.inputs import DecodeInputs
from tt_worker.results import Batch
from tt_worker.runner import Runner
from tt_worker.step import StepRequest
from tt_worker.tenants import State, StepError

_DECODE = "a decode step"


class BlockRunner(Runner):
    """A request goes forward by what its last step emitted; the device begins at the last of these tokens.

    Nobody lingers: a class that counts live rows would take a batch for a lone row's company. Prompts are computed
    whole, and every token is sampled on the device, but for the anchors of adaptive output.
    """

    def __init__(self, blocks: BlockOutput, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._blocks = blocks

    def _decode(self, group: DecodeGroup, step: StepRequest) -> None:
        batch = group.batch
        states, rows = batch.states, batch.rows
        width = self._blocks.of_decode([state.prefill_end for state in states])
        counts = [step.scheduled[state.request_id] for state in states]
        lasts = [state.computed + count - 1 for state, count in zip(states, counts, strict=True)]
        placement = self._samplers.place_decode(rows)
        if not placement.device:
            raise StepError(f"block output is sampled on the device, and {batch.ids} cannot: {placement.names}")
        now = self._situation(group, on_device=True)
        plan = self._planner.plan(now)
        tokens, start_pos = self._buffers.fill(rows, lasts)
        inputs = DecodeInputs(tokens, start_pos, self._pages.decode(rows))
        if plan.reload_inputs or not self._config.overlap:
            self._queue.drain()
            tokens[rows, 0] = [_token(state, last) for state, last in zip(states, lasts, strict=True)]
        self._prefills.wait()
        submit = partial(self._adapter.submit_decode, inputs, self._samplers.device.view(), plan, width=width)
        outcome = self._limit.call(_DECODE, submit)
        self._planner.accept(now)
        for state, count in zip(states, counts, strict=True):
            state.computed += count
        self._log.step(
            "decode",
            requests=len(rows),
            tokens=sum(counts),
            emitted=width * len(rows),
            sampled="device",
            because=placement.names,
            reload=plan.reload_inputs,
            ahead=len(self._queue),
        )
        self._promise(batch, partial(self._limit.call, _DECODE, outcome), width)

    def _promise(self, batch: Batch, read: Any, width: int) -> None:
        """A block is the only line of its answer; single tokens lie by row."""
        lines = [0] if width > 1 else batch.rows
        self._unsampled.append(self._results.promise(batch, read, lines, on_device=True))


def _token(state: State, position: int) -> int:
    """The token that is to be computed there. Raises StepError when it is not known yet."""
    if position >= len(state.prompt) + len(state.output):
        raise StepError(f"request {state.request_id!r} is scheduled at position {position}, beyond its tokens")
    return state.token_at(position)
