"""Differential fuzz of the runner: any order of arrivals, chunks, preemptions, aborts, overlap and sampling places
gives each
request exactly the tokens that it gets alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import answer
from random_block_engine import BlockEngine, BlockScenario, adaptive, plain
from random_engine import Engine, Scenario

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import Mode
from tt_worker.adapter import ModelAdapter
from tt_worker.block_runner import BlockRunner
from tt_worker.failure import StepFailed
from tt_worker.inflight import InFlightQueue
from tt_worker.inputs import DecodeBuffers
from tt_worker.results import Results
from tt_worker.step import Admission, StepRequest

SCENARIOS = st.builds(
    Scenario,
    seed=st.integers(0, 2**32),
    contract=st.sampled_from([0, 1]),
    overlap=st.booleans(),
    lanes=st.sampled_from([1, 2, 4]),
    mode=st.sampled_from(list(Mode)),
    budget=st.sampled_from([3, 8, 40]),
    blocks=st.sampled_from([12, 20, 64]),
    requests=st.integers(1, 9),
    window=st.sampled_from([None, None, 3, 9]),
    recurrent=st.sampled_from([False, False, True]),
    sees=st.sampled_from([False, False, True]),
)

COMMON = {
    "seed": st.integers(0, 2**32),
    "contract": st.sampled_from([0, 1]),
    "blocks": st.sampled_from([12, 20, 64]),
    "requests": st.integers(1, 9),
    "longest": st.sampled_from([24, 33, 44]),
    "width": st.sampled_from([2, 3, 5, 8]),
}
BLOCK_SCENARIOS = st.one_of(
    st.builds(plain, **COMMON),
    st.builds(
        adaptive,
        **COMMON,
        overlap=st.booleans(),
        mode=st.sampled_from([Mode.ALL, Mode.DECODE_ONLY]),
        max_prompt=st.sampled_from([0, 10]),
        extent=st.sampled_from([0, 20]),
    ),
)


@settings(max_examples=200, deadline=None)
@given(SCENARIOS)
def test_every_request_gets_the_tokens_it_gets_alone(scenario: Scenario) -> None:
    """Fails when, for example: a decode is submitted from the host's tokens without draining, a released row keeps
    its blocks, a state is not begun anew or is another request's, the planner commits before the call, a late token is
    applied by row, or `prefilling` compares counters."""
    engine = Engine(scenario)
    engine.run()
    for request in engine.everyone:
        images = request.images if scenario.sees else None
        expected = answer(
            request.prompt, request.max_tokens, scenario.window, recurrent=scenario.recurrent, images=images
        )
        if request.name in engine.aborted:
            expected = expected[: len(request.output)]
        assert request.output == expected, request.name
    assert len(engine.free) == scenario.blocks - 1


def check_blocks(scenario: BlockScenario) -> BlockEngine:
    """Run it. Fails unless each request got what it gets alone, and the model was told of the end of each tenancy."""
    engine = BlockEngine(scenario)
    engine.run()
    engine.runner.execute(StepRequest(leaving=engine.leaving))
    engine.runner.close()
    for request in engine.everyone:
        stop = len(request.output) if request.name in engine.aborted else engine.stops[request.name]
        assert request.output == answer(request.prompt, stop), request.name
    assert len(engine.free) == scenario.blocks - 1
    assert not engine.model.held, "a slot was not released"
    assert engine.model.captures_released == 1
    return engine


@settings(max_examples=200, deadline=None)
@given(BLOCK_SCENARIOS)
def test_every_request_gets_in_blocks_the_tokens_it_gets_alone(scenario: BlockScenario) -> None:
    """Fails when, for example: a step begins where an ordinary one would, a block is not clipped, a request that
    entered with a long prompt gets blocks, a block is taken from a row of the batch, a step in flight counts one token,
    or a slot is not released. The next test breaks some of that."""
    check_blocks(scenario)


def block_scenarios() -> Iterator[BlockScenario]:
    """Fixed ones, of all kinds."""
    for seed in range(40):
        common: dict[str, Any] = {
            "seed": seed,
            "contract": seed % 2,
            "blocks": (12, 20, 64)[seed // 2 % 3],
            "requests": 6,
            "longest": (24, 33, 44)[seed % 3],
            "width": (2, 3, 5, 8)[seed // 4 % 4],
        }
        if seed % 4 == 0:
            yield plain(**common)
        else:
            yield adaptive(
                **common,
                overlap=seed % 3 > 0,
                mode=(Mode.ALL, Mode.DECODE_ONLY)[seed // 3 % 2],
                max_prompt=(0, 10)[seed // 5 % 2],
                extent=(0, 20)[seed // 7 % 2],
            )


def test_the_scenarios_of_blocks_reach_what_they_are_for() -> None:
    """Fails when, for example, nobody is ever alone, or the pool is never too small."""
    reached: Counter[str] = Counter()
    for scenario in block_scenarios():
        engine = check_blocks(scenario)
        reached.update(engine.counts)
        reached["aborted"] += len(engine.aborted)
    assert min(reached[name] for name in (*engine.counts, "aborted")) > 10, reached


def begins_a_position_early(patch: pytest.MonkeyPatch) -> None:
    """Behind the tokens that are computed, instead of at the last one known."""
    fill = DecodeBuffers.fill
    patch.setattr(
        DecodeBuffers, "fill", lambda self, rows, positions: fill(self, rows, [position - 1 for position in positions])
    )


def clips_nothing(patch: pytest.MonkeyPatch) -> None:
    make = Results.__init__
    patch.setattr(Results, "__init__", lambda *parts, **more: make(*parts, **{**more, "longest": None}))


def forgets_long_prompts(patch: pytest.MonkeyPatch) -> None:
    make = BlockRunner.__init__
    patch.setattr(
        BlockRunner, "__init__", lambda self, blocks, *parts: make(self, replace(blocks, max_prompt=0), *parts)
    )


def looks_for_a_block_by_row(patch: pytest.MonkeyPatch) -> None:
    def promise(self: Any, batch: Any, read: Any, width: int) -> None:
        self._unsampled.append(self._results.promise(batch, read, batch.rows, on_device=True))

    patch.setattr(BlockRunner, "_promise", promise)


def releases_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelAdapter, "release", lambda self, row: None)


def waits_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """Before it sends the host's tokens."""
    patch.setattr(InFlightQueue, "drain", lambda self: None)


BROKEN = (
    begins_a_position_early,
    clips_nothing,
    forgets_long_prompts,
    looks_for_a_block_by_row,
    releases_nobody,
    waits_for_nothing,
)


@pytest.mark.parametrize("break_rule", BROKEN)
def test_the_scenarios_of_blocks_notice_a_broken_rule(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each breaks one thing: the position after a block, the clipping at the longest sequence, the limit of prompts,
    where a lone row's block lies in the answer, `release_request`, the wait for tokens in flight."""
    break_rule(monkeypatch)
    with pytest.raises((AssertionError, StepFailed)):
        list(map(check_blocks, block_scenarios()))


def test_a_mixed_step_is_refused() -> None:
    engine = Engine(Scenario(1, 1, False, 1, Mode.ALL, 40, 64, 0))
    sampling = RowSampling(temperature=0)
    first = Admission("a", [1, 2], [], 0, [[1]], sampling)
    engine.runner.execute(StepRequest(admissions=[first], scheduled={"a": 2}))
    second = Admission("b", [1, 2], [], 0, [[2]], sampling)
    with pytest.raises(StepFailed, match="StepError: a step mixes 1 prefill and 1 decode"):
        engine.runner.execute(StepRequest(admissions=[second], scheduled={"a": 1, "b": 2}))


def test_a_count_that_differs_from_the_engine_s_is_refused() -> None:
    engine = Engine(Scenario(1, 1, False, 1, Mode.ALL, 40, 64, 0))
    admission = Admission("a", [1, 2], [], 0, [[1]], RowSampling(temperature=0))
    engine.runner.execute(StepRequest(admissions=[admission], scheduled={"a": 2}))
    with pytest.raises(StepFailed, match="the engine counts 3 computed tokens, the worker 2"):
        engine.runner.execute(StepRequest(computed={"a": 3}, scheduled={"a": 1}))


@pytest.mark.parametrize(("output", "on_device"), [([], True), ([3], False)])
def test_a_penalised_request_that_resumes_is_sampled_on_the_host(output: list[int], on_device: bool) -> None:
    """A prefill call has no histories. Fails when a replay with penalties is sampled on the device."""
    engine = Engine(Scenario(1, 1, False, 1, Mode.ALL, 40, 64, 0))
    sampling = RowSampling(temperature=0, presence_penalty=0.5)
    admission = Admission("a", [1, 2], output, 0, [[1]], sampling)
    engine.runner.execute(StepRequest(admissions=[admission], scheduled={"a": 2 + len(output)}))
    assert (engine.model.sampled_on_device[-1]) == on_device
