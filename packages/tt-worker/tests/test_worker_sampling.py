"""Rows and their samplers stay in step."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import BLOCK, VOCABULARY, LedgerModel

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_sampling.reasons import Reason
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.methods import AdapterError
from tt_worker.outcome import Outcome, picked_logprobs, picked_tokens
from tt_worker.pages import PageTable, PageTables
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

    def device_logprobs(self, token_ids: Any, given: Any, asked: Any) -> Any:
        return token_ids, given, asked

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
    assert (samplers.tally.host_steps, samplers.tally.device_steps) == (1, 0)
    samplers.release(state)
    assert samplers.place_decode([2]).device
    assert samplers.device.view().temperature[2] == 0.0
    assert samplers.host.rows == set()  # type: ignore[attr-defined]


def test_histories_follow_the_tokens_and_end_with_the_row() -> None:
    """int32 [B, L], -1 padded. Fails when a late token of a former tenant is appended to the row."""
    samplers, state = admitted(RowSampling(temperature=0, repetition_penalty=1.2))
    samplers.record([state], [8], [True])
    prompt, output = samplers.histories.view()
    assert prompt[2].tolist() == [5, 6]
    assert output[2].tolist() == [7, 8]
    assert (prompt[[0, 1, 3]] == -1).all()
    state.alive = False
    samplers.release(state)
    samplers.record([state], [9], [True])
    assert (samplers.histories.view()[1] == -1).all()
    assert state.output == [7, 8, 9]


@dataclass
class Sample:
    token_ids: list[int]
    late: Any = None
    failed: dict[int, str] = field(default_factory=dict)


class Constant(Recorder):
    """Answers 7 for every row."""

    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Any:
        return Sample([7] * len(rows))


class FailsTheSecond(Recorder):
    """Answers 7 for every row and cannot go on with the second."""

    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Any:
        return Sample([7] * len(rows), failed={1: "no mask came"} if len(rows) > 1 else {})


class TopLists(LedgerModel):
    """A device sampler that returns its best candidates beside the tokens, as gpt-oss does."""

    def _answer(self, tokens: list[int], on_device: bool) -> Any:
        answer = super()._answer(tokens, on_device)
        if not on_device:
            return answer
        ids = torch.tensor(tokens).unsqueeze(1) + torch.arange(3)
        return answer, (torch.tensor([-0.1, -0.2, -0.3]).repeat(len(tokens), 1), ids)


def runner_of(
    host: Any,
    config: RunnerConfig,
    device: DeviceSampler | None = None,
    log: StepLog | None = None,
    model: LedgerModel | None = None,
) -> Runner:
    model = model or LedgerModel(4, 12, contract=1)
    adapter = ModelAdapter(
        model, rows=4, vocab_size=VOCABULARY, trace=TraceMode.of("all"), event_synchronize=lambda event: None
    )
    samplers = RowSamplers(4, VOCABULARY, device or DeviceSampler(), host)
    planner = ReloadPlanner(resident_inputs=True)
    return Runner(
        config, adapter, RowTable(4, 1), PageTables([PageTable(4, 16, 12)]), samplers, planner, log or StepLog()
    )


def admissions(*params: RowSampling) -> StepRequest:
    """One request of two tokens for each of `params`: r0, r1, ..."""
    new = [Admission(f"r{i}", [1, 2], [], 0, [[1 + i]], one) for i, one in enumerate(params)]
    return StepRequest(admissions=new, scheduled={one.request_id: 2 for one in new})


def answer(runner: Runner) -> Any:
    flight = runner.sample()
    assert flight is not None
    return flight.result()


def test_a_request_that_fails_in_the_sampler_has_no_token_and_the_others_have_theirs() -> None:
    """The engine may have scheduled the failed one again before it knows: that step must still run."""
    runner = runner_of(FailsTheSecond(), RunnerConfig(alignment=BLOCK))
    runner.execute(admissions(RowSampling(), RowSampling(), RowSampling()))
    result: Any = answer(runner)
    assert result.token_ids == [[7], [], [7]]
    assert result.failed == {"r1": "no mask came"}
    runner.execute(StepRequest(scheduled={"r0": 1, "r1": 1, "r2": 1}))
    again: Any = answer(runner)
    assert again.failed == {"r1": "no mask came"}
    runner.execute(StepRequest(leaving=["r1"], scheduled={"r0": 1}))
    last: Any = answer(runner)
    assert (last.token_ids, last.failed) == ([[7]], {})


def test_a_failed_request_that_comes_back_ends_the_engine_where_the_scheduler_cannot_end_it() -> None:
    """Never an unconstrained token, whatever the scheduler. One that ended in the meantime does not come back."""
    runner = runner_of(FailsTheSecond(), RunnerConfig(alignment=BLOCK, scheduler_ends_failed=False))
    runner.execute(admissions(RowSampling(), RowSampling()))
    assert answer(runner).token_ids == [[7], []]
    runner.execute(StepRequest(scheduled={"r0": 1}))
    assert answer(runner).token_ids == [[7]]
    runner.execute(StepRequest(scheduled={"r1": 1}))
    with pytest.raises(RuntimeError, match="no mask came"):
        answer(runner)


def test_every_sampled_step_is_counted_once_and_the_log_says_why(tmp_path: Path) -> None:
    """A prefill of chunks alone samples nothing and is not counted."""
    log = tmp_path / "steps.jsonl"
    runner = runner_of(Constant(), RunnerConfig(alignment=BLOCK), DeviceSampler(Mode.ALL), StepLog(str(log)))
    long = Admission("long", list(range(9)), [], 0, [[5, 6, 7]], RowSampling(min_p=0.5))
    runner.execute(StepRequest(admissions=[long], scheduled={"long": 4}))
    runner.sample()
    assert runner._samplers.tally.host_steps == runner._samplers.tally.device_steps == 0
    runner.execute(StepRequest(scheduled={"long": 5}))
    runner.sample()
    for _ in range(3):
        runner.execute(StepRequest(scheduled={"long": 1}))
        runner.sample()
    tally = runner._samplers.tally
    assert (dict(tally.steps), tally.host_steps, tally.device_steps) == ({Reason.MIN_P: 4}, 4, 0)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["because"] for line in lines] == [[], *[["MIN_P"]] * 4]


@pytest.mark.parametrize(
    ("logprobs", "given"),
    [(torch.arange(4) * -0.1, [-0.1, 0.0]), ((torch.arange(8.0).view(4, 2), torch.arange(8).view(4, 2)), None)],
    ids=["of the sampled tokens", "of the best candidates"],
)
def test_device_logprobs_go_with_their_rows(logprobs: Any, given: Any) -> None:
    """The rows of a step in the engine's order, not in that of the device. Nobody asked: nothing is converted."""
    outcome = Outcome(torch.tensor([10, 11, 12, 13]), None, logprobs)
    values, ids = picked_logprobs(outcome, [1, 0])
    assert picked_tokens(outcome, [1, 0]) == [11, 10]
    if ids is None:
        assert values.tolist() == pytest.approx(given)
    else:
        assert (values.tolist(), ids.tolist()) == ([[2.0, 3.0], [0.0, 1.0]], [[2, 3], [0, 1]])


def test_a_model_that_forgets_its_logprobs_is_an_error() -> None:
    with pytest.raises(AdapterError, match="NoneType for logprobs"):
        picked_logprobs(Outcome(torch.tensor([1]), None), [0])


def test_top_lists_of_the_device_reach_the_engine_from_the_first_token_on() -> None:
    """For the requests of the step, in its order, with what each asked. A batch that asks for none converts none."""
    device = DeviceSampler(Mode.ALL, devices_per_lane=8, top_logprobs=True)
    runner = runner_of(Recorder(), RunnerConfig(alignment=BLOCK), device, model=TopLists(4, 12, contract=1))
    runner.execute(admissions(RowSampling(temperature=0, logprobs=2), RowSampling(temperature=0)))
    result = answer(runner)
    tokens, (values, ids), asked = result.logprobs
    assert ([[token] for token in tokens], asked) == (result.token_ids, [2, None])
    assert ids[:, 0].tolist() == tokens
    assert values.shape == ids.shape == (2, 3)
    runner.execute(StepRequest(leaving=["r0"], scheduled={"r1": 1}))
    assert answer(runner).logprobs is None


class LateLogprobs(Recorder):
    """Answers 7 for every row, with logprobs that say when they were worked out."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events

    def sample(self, logits: Any, rows: Any, *, advance: Any, grammar: Any) -> Any:
        self.events.append("tokens")
        return Sample([7] * len(rows), late=lambda: self.events.append("logprobs") or ["lists"])


class Submitting(LedgerModel):
    """Notes when a decode step is submitted."""

    def __init__(self, *args: Any, events: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.events = events

    def decode_forward(self, **kwargs: Any) -> Any:
        self.events.append("submit")
        return super().decode_forward(**kwargs)


def test_the_next_step_does_not_wait_for_logprobs() -> None:
    """The device would idle meanwhile. Fails when they are worked out with the tokens."""
    events: list[str] = []
    model = Submitting(4, 12, contract=1, events=events)
    config = RunnerConfig(alignment=BLOCK)
    runner = runner_of(LateLogprobs(events), config, DeviceSampler(mode=Mode.OFF), model=model)
    asks = RowSampling(temperature=0, logprobs=2)
    runner.execute(admissions(asks, asks))
    first = runner.sample()
    runner.execute(StepRequest(scheduled={"r0": 1, "r1": 1}))
    assert events == ["tokens", "submit"]
    assert first is not None
    assert first.result().logprobs == ["lists"]
    assert events == ["tokens", "submit", "logprobs"]
