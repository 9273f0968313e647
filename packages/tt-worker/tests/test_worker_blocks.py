"""Block output: what a step answers, and how far each request goes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from block_ledger import BlockLedger
from ledger_model import BLOCK, VOCABULARY, Argmax, answer

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_scheduler.blocks import BlockOutput
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.block_runner import BlockRunner
from tt_worker.failure import StepFailed
from tt_worker.methods import AdapterError
from tt_worker.outcome import blocks_of
from tt_worker.pages import PageTable, PageTables
from tt_worker.reload import ReloadPlanner
from tt_worker.rows import RowTable
from tt_worker.runner import RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest
from tt_worker.steplog import StepLog

WIDTH = 3
GREEDY = RowSampling(temperature=0)


def runner_of(model: BlockLedger, blocks: BlockOutput, *, longest: int = 60, overlap: bool = False) -> BlockRunner:
    rows = len(model.positions)
    adapter = ModelAdapter(
        model, rows=rows, vocab_size=VOCABULARY, trace=TraceMode.of("all"), event_synchronize=lambda event: None
    )
    adapter.prefill_width = blocks.of_prefill
    adapter.layer_groups = (0,)
    return BlockRunner(
        blocks,
        RunnerConfig(alignment=BLOCK, overlap=overlap, longest=longest),
        adapter,
        RowTable(rows),
        PageTables([PageTable(rows, 16, 64)], [None], BLOCK),
        RowSamplers(rows, VOCABULARY, DeviceSampler(mode=Mode.ALL), Argmax()),
        ReloadPlanner(resident_inputs=overlap),
        StepLog(),
    )


def run(runner: BlockRunner, step: StepRequest) -> dict[str, list[int]]:
    assert runner.execute(step) is None
    flight = runner.sample()
    assert flight is not None
    result = flight.result()
    return dict(zip(result.request_ids, map(list, result.token_ids), strict=True))


def admitted(name: str, prompt: Sequence[int], first_block: int) -> StepRequest:
    blocks = list(range(first_block, first_block + 16))
    admission = Admission(name, list(prompt), [], 0, [blocks], GREEDY)
    return StepRequest(admissions=[admission], scheduled={name: len(prompt)})


def test_W20_a_request_goes_forward_by_what_its_last_step_emitted() -> None:
    """A block begins at the last token known. Fails when a decode starts where an ordinary one would."""
    model = BlockLedger(1, width=WIDTH, adaptive=False)
    runner = runner_of(model, BlockOutput(WIDTH))
    prompt = [5, 6, 7, 8, 9]
    tokens = run(runner, admitted("a", prompt, 1))["a"]
    for i in range(3):
        tokens += run(runner, StepRequest(computed={"a": 5 + i * WIDTH}, scheduled={"a": WIDTH}))["a"]
    assert tokens == answer(prompt, 4 * WIDTH)
    assert model.asked == [[7], [10], [13]]


def test_W21_a_lone_row_gets_a_block_and_rows_of_a_batch_a_token_each() -> None:
    model = BlockLedger(3, width=WIDTH, adaptive=True)
    runner = runner_of(model, BlockOutput(WIDTH, adaptive=True))
    first = run(runner, admitted("a", [1, 2, 3], 1))["a"]
    first += run(runner, StepRequest(computed={"a": 3}, scheduled={"a": 1}))["a"]
    assert len(first) == 1 + WIDTH
    second = run(runner, admitted("b", [4, 5], 20))["b"]
    both = run(runner, StepRequest(computed={"a": 4, "b": 2}, scheduled={"a": WIDTH, "b": 1}))
    assert [len(both["a"]), len(both["b"])] == [1, 1]
    assert first + both["a"] == answer([1, 2, 3], 2 + WIDTH)
    assert second + both["b"] == answer([4, 5], 2)
    alone = run(runner, StepRequest(leaving=["a"], computed={"b": 3}, scheduled={"b": 1}))
    assert second + both["b"] + alone["b"] == answer([4, 5], 2 + WIDTH)
    assert model.released == [0]


def test_W21_overlapped_blocks_take_nothing_from_the_host() -> None:
    """The second step is submitted before the first one's tokens are known."""
    model = BlockLedger(2, width=WIDTH, adaptive=True)
    runner = runner_of(model, BlockOutput(WIDTH, adaptive=True), overlap=True)
    tokens = run(runner, admitted("a", [1, 2, 3], 1))["a"]
    runner.execute(StepRequest(computed={"a": 3}, scheduled={"a": 1}))
    first = runner.sample()
    runner.execute(StepRequest(computed={"a": 4}, scheduled={"a": WIDTH}))
    second = runner.sample()
    assert first is not None
    assert second is not None
    for flight in (first, second):
        tokens += flight.result().token_ids[0]
    assert tokens == answer([1, 2, 3], 1 + 2 * WIDTH)


def test_W22_a_block_is_clipped_at_the_longest_sequence() -> None:
    """What a model answers for positions that do not exist is not a token."""
    model = BlockLedger(1, width=WIDTH, adaptive=False)
    runner = runner_of(model, BlockOutput(WIDTH), longest=10)
    tokens = run(runner, admitted("a", [5, 6, 7, 8, 9], 1))["a"]
    tokens += run(runner, StepRequest(computed={"a": 5}, scheduled={"a": WIDTH}))["a"]
    assert tokens == answer([5, 6, 7, 8, 9], 5)


@pytest.mark.parametrize(
    "value", [torch.zeros(4, 1, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 3), "no"]
)
def test_W23_an_answer_of_another_width_than_was_reserved_is_refused(value: Any) -> None:
    with pytest.raises(AdapterError, match=r"wants 3 token\(s\) of each of 1 row\(s\)"):
        blocks_of(value, rows=1, width=3, label="Model.decode_forward")


def test_W23_a_step_that_mixes_phases_is_refused() -> None:
    runner = runner_of(BlockLedger(2, width=WIDTH, adaptive=True), BlockOutput(WIDTH, adaptive=True))
    run(runner, admitted("a", [1, 2, 3], 1))
    late = Admission("b", [4, 5], [], 0, [[20]], GREEDY)
    with pytest.raises(StepFailed, match="mixes 1 prefill and 1 decode"):
        runner.execute(StepRequest(admissions=[late], computed={"a": 3}, scheduled={"a": 1, "b": 2}))
