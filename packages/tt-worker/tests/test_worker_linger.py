"""A request whose last token is in flight stays in the batch for one step: the overlap is lost once when it leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import BLOCK, VOCABULARY, LedgerModel, next_token

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.pages import PageTable, PageTables
from tt_worker.reload import ReloadPlanner
from tt_worker.rows import RowTable
from tt_worker.runner import Runner, RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest
from tt_worker.steplog import StepLog


class Plain:
    """The engine's sampler where nothing is sampled on the host."""

    def admit(self, row: int, params: Any, prompt: list[int], output: list[int], *, request_id: str) -> RowSampling:
        return RowSampling(temperature=0.0)

    def release(self, row: int) -> None:
        pass


def run(tmp_path: Path, blocks_of_short: list[int], ends_at: int | None, contract: int) -> tuple[list[bool], list[int]]:
    """Two requests; `short` is skipped in the fourth step and gone in the fifth. Reloads by step, tokens of `long`."""
    log = tmp_path / "steps"
    model = LedgerModel(2, 32, contract=contract)
    samplers = RowSamplers(2, VOCABULARY, DeviceSampler(Mode.ALL), Plain())  # type: ignore[arg-type]
    adapter = ModelAdapter(
        model, rows=2, vocab_size=VOCABULARY, trace=TraceMode.of("all"), event_synchronize=lambda event: None
    )
    pages = PageTables([PageTable(2, 8, 32)], block_size=BLOCK)
    planner = ReloadPlanner(resident_inputs=True)
    runner = Runner(RunnerConfig(alignment=1), adapter, RowTable(2), pages, samplers, planner, StepLog(str(log)))
    prompts = {"short": [1, 2], "long": [3, 4, 5]}
    new = [
        Admission("short", prompts["short"], [], 0, [blocks_of_short], None, ends_at=ends_at),
        Admission("long", prompts["long"], [], 0, [[8, 9, 10, 11]], None),
    ]
    flights = []

    def step(**request: Any) -> None:
        assert runner.execute(StepRequest(**request)) is None
        flights.append(runner.sample())

    step(admissions=new, scheduled={"short": 2, "long": 3})
    step(scheduled={"short": 1, "long": 1})
    step(scheduled={"short": 1, "long": 1})
    step(scheduled={"long": 1})
    step(leaving=["short"], scheduled={"long": 1})
    step(scheduled={"long": 1})
    tokens = [dict(zip(result.request_ids, result.token_ids, strict=True)) for result in (f.result() for f in flights)]
    reloads = [line["reload"] for line in map(json.loads, log.read_text().splitlines()) if "reload" in line]
    runner.close()
    return reloads, [one["long"][0] for one in tokens]


def alone(prompt: list[int], count: int) -> list[int]:
    context = list(prompt)
    for _ in range(count):
        context.append(next_token(context))
    return context[len(prompt) :]


# The short request has a prompt of 2 and ends with 5 tokens: 3 generated, the last in flight when it is skipped.
CASES = {
    "it lingers": ([2, 3], 5, [True, False, False, True, False]),
    "no block for the next position": ([2], 5, [True, False, True, True, False]),
    "it may go on later": ([2, 3], 9, [True, False, True, True, False]),
    "nobody knows when it ends": ([2, 3], None, [True, False, True, True, False]),
}


@pytest.mark.parametrize("contract", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_a_request_that_is_over_costs_one_reload_not_two(tmp_path: Path, case: str, contract: int) -> None:
    """Fails when `_lingering` is empty (first case), or does not look at blocks and ends (the others)."""
    blocks, ends_at, reloads = CASES[case]
    seen, tokens = run(tmp_path, blocks, ends_at, contract)
    assert seen == reloads
    assert tokens == alone([3, 4, 5], 6)
