"""Differential fuzz of the runner: any order of arrivals, chunks, preemptions, aborts, overlap and sampling places
gives each
request exactly the tokens that it gets alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import answer
from random_engine import Engine, Scenario

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import Mode
from tt_worker.failure import StepFailed
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
