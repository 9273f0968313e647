"""Rows and their samplers stay in step."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import BLOCK, VOCABULARY, LedgerModel

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.pages import PageTable
from tt_worker.reload import ReloadPlanner
from tt_worker.request import RequestState
from tt_worker.rows import RowTable
from tt_worker.runner import Runner, RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest
from tt_worker.steplog import StepLog


class Recorder:
    """A host sampler that remembers who is there."""

    def __init__(self) -> None:
        self.rows: set[int] = set()

    def admit(self, row: int, params: Any, prompt: Any, output: Any, *, request_id: str) -> RowSampling:
        self.rows.add(row)
        return params

    def release(self, row: int) -> None:
        self.rows.discard(row)

    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Any:
        raise NotImplementedError


def admitted(sampling: RowSampling) -> tuple[RowSamplers, RequestState[RowSampling]]:
    samplers = RowSamplers(4, 50, DeviceSampler(mode=Mode.ALL), Recorder())
    state = RequestState("a", 2, [5, 6], [7], 3, 0, sampling)
    samplers.admit(state)
    return samplers, state


def test_a_released_row_no_longer_moves_steps_to_the_host() -> None:
    """Fails when `release` forgets the placement."""
    samplers, state = admitted(RowSampling(min_p=0.5))
    assert not samplers.place_decode([2]).device
    samplers.release(state)
    assert samplers.place_decode([2]).device
    assert samplers.device.view().temperature[2] == 0.0
    assert samplers.host.rows == set()  # type: ignore[attr-defined]


def test_histories_follow_the_tokens_and_end_with_the_row() -> None:
    """int32 [B, L], -1 padded. Fails when a late token of a former tenant is appended to the row."""
    samplers, state = admitted(RowSampling(temperature=0, repetition_penalty=1.2))
    samplers.record(state, 8)
    prompt, output = samplers.histories.view()
    assert prompt[2].tolist() == [5, 6]
    assert output[2].tolist() == [7, 8]
    assert (prompt[[0, 1, 3]] == -1).all()
    state.alive = False
    samplers.release(state)
    samplers.record(state, 9)
    assert (samplers.histories.view()[1] == -1).all()
    assert state.output == [7, 8, 9]


@dataclass
class Sample:
    token_ids: list[int]
    logprobs: Any = None
    failed: dict[int, str] = field(default_factory=dict)


class FailsTheSecond(Recorder):
    """Answers 7 for every row and cannot go on with the second."""

    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Any:
        return Sample([7] * len(rows), failed={1: "no mask came"} if len(rows) > 1 else {})


def runner_of(host: Any, config: RunnerConfig, device: DeviceSampler | None = None) -> Runner:
    model = LedgerModel(4, 12, contract=1)
    adapter = ModelAdapter(
        model, rows=4, vocab_size=VOCABULARY, trace=TraceMode.of("all"), event_synchronize=lambda event: None
    )
    samplers = RowSamplers(4, VOCABULARY, device or DeviceSampler(), host)
    planner = ReloadPlanner(resident_inputs=True)
    return Runner(config, adapter, RowTable(4, 1), [PageTable(4, 16, 12)], samplers, planner, StepLog())


def admissions(*params: RowSampling) -> StepRequest:
    """One request of two tokens for each of `params`: r0, r1, ..."""
    new = [Admission(f"r{i}", [1, 2], [], 0, [[1 + i]], one) for i, one in enumerate(params)]
    return StepRequest(admissions=new, scheduled={one.request_id: 2 for one in new})


def test_a_request_that_fails_in_the_sampler_has_no_token_and_the_others_have_theirs() -> None:
    """The engine may have scheduled the failed one again before it knows: that step must still run."""
    runner = runner_of(FailsTheSecond(), RunnerConfig(alignment=BLOCK))
    runner.execute(admissions(RowSampling(), RowSampling(), RowSampling()))
    result: Any = runner.sample()
    assert result.token_ids == [[7], [], [7]]
    assert result.failed == {"r1": "no mask came"}
    runner.execute(StepRequest(scheduled={"r0": 1, "r1": 1, "r2": 1}))
    again: Any = runner.sample()
    assert again.failed == {"r1": "no mask came"}
    runner.execute(StepRequest(leaving=["r1"], scheduled={"r0": 1}))
    last: Any = runner.sample()
    assert (last.token_ids, last.failed) == ([[7]], {})


def test_a_scheduler_that_cannot_end_one_request_ends_the_step() -> None:
    """Never an unconstrained token, whatever scheduler was chosen."""
    runner = runner_of(FailsTheSecond(), RunnerConfig(alignment=BLOCK, scheduler_ends_failed=False))
    runner.execute(admissions(RowSampling(), RowSampling()))
    with pytest.raises(RuntimeError, match="no mask came"):
        runner.sample()
