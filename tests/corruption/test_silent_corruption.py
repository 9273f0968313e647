"""Faults of plugins in the field that mixed, doubled, lost or staled tokens, each as a scenario on the strict mesh.

Every scenario runs twice: as the worker is, where each request must get exactly the tokens that it gets alone, and with
the rule that prevents the fault broken, where the scenario must notice. `breaks` says what is broken and how.
References: the issue lists of the incumbent plugin, its vLLM fork and tt-metal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from script import ON_HOST, PENALISED, Script, script

from tt_worker import runner as runner_module
from tt_worker.decoding import DecodeGroup
from tt_worker.failure import StepFailed
from tt_worker.histories import Histories
from tt_worker.inflight import InFlightQueue
from tt_worker.inputs import DecodeBuffers, PrefillInputs, prefill_inputs
from tt_worker.pages import PageTable
from tt_worker.reload import ReloadPlan, ReloadPlanner
from tt_worker.request import RequestState
from tt_worker.results import Results
from tt_worker.runner import Runner
from tt_worker.sampling import RowSamplers
from tt_worker.step import StepRequest
from tt_worker.tenants import Tenants

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Fault:
    """refs: who met it;  scenario: what shows it;  breaks: the rule, broken;  settings: of the Script"""

    refs: str
    scenario: Callable[[Script], None]
    breaks: Callable[[Patch], None]
    settings: dict[str, Any]

    def __str__(self) -> str:
        return self.scenario.__name__


FAULTS: list[Fault] = []


def fault(refs: str, breaks: Callable[[Patch], None], **settings: Any) -> Callable[[Callable[[Script], None]], None]:
    def keep(scenario: Callable[[Script], None]) -> None:
        FAULTS.append(Fault(refs, scenario, breaks, settings))

    return keep


# Overlap


def nothing_is_drained(patch: Patch) -> None:
    """A step that needs the host's tokens does not wait for the steps in flight."""
    patch.setattr(InFlightQueue, "drain", lambda self: None)


@fault("#21, fork#444", nothing_is_drained)
def a_request_joins_while_two_steps_are_in_flight(script: Script) -> None:
    """Else a token is applied twice or not at all."""
    script.ask("a", 40)
    script.ask("b", 20)
    script.prefill("a")
    for _ in range(4):
        script.decode("a")
    script.prefill("b")
    for _ in range(4):
        script.decode("a", "b")
    script.check(a=9, b=5)


@fault("fork#395, fork#396", nothing_is_drained, lanes=2)
def lanes_overlap_like_a_single_one(script: Script) -> None:
    """Else asynchronous scheduling doubles tokens under data parallelism."""
    script.ask("a", 40, lane=0)
    script.ask("b", 33, lane=1)
    script.ask("c", 7, lane=1)
    script.prefill("a")
    script.decode("a")
    script.prefill("b")
    script.decode("a", "b")
    script.prefill("c")
    for _ in range(5):
        script.decode("a", "b", "c")
    script.check(a=8, b=7, c=6)


def results_of_leavers_are_dropped(patch: Patch) -> None:
    """What is in flight goes when one of its requests leaves."""

    def settle(self: Results, step: StepRequest) -> None:
        if step.leaving or step.admissions:
            self.queue._steps.clear()

    patch.setattr(Results, "settle", settle)


@fault("#58", results_of_leavers_are_dropped)
def a_request_ends_while_its_last_token_is_in_flight(script: Script) -> None:
    """Else the pending step is pruned and its token never applied."""
    script.ask("a", 10)
    script.ask("b", 12)
    script.prefill("a", "b")
    script.settle()
    script.decode("a", "b")
    script.finish("a")
    script.decode("b")
    script.check(a=2, b=3)


def results_go_to_whoever_has_the_name(patch: Patch) -> None:
    """A late token is appended to the newest tenancy of the same request."""
    newest: dict[str, Any] = {}
    admit, record = RowSamplers.admit, RowSamplers.record

    def admitted(self: RowSamplers, state: Any) -> None:
        newest[state.request_id] = state
        admit(self, state)

    def recorded(self: RowSamplers, states: Any, tokens: Any, final: Any, histories: Any = None) -> None:
        record(self, [newest[state.request_id] for state in states], tokens, final)

    patch.setattr(RowSamplers, "admit", admitted)
    patch.setattr(RowSamplers, "record", recorded)


@fault("#61", results_go_to_whoever_has_the_name)
def a_request_returns_while_its_former_step_is_in_flight(script: Script) -> None:
    """Else the identity check passes, since it is the same request, and the token is there twice."""
    script.ask("a", 40)
    script.prefill("a")
    script.settle()
    script.decode("a")
    script.preempt("a", forget_unread=True)
    script.prefill("a")
    script.decode("a")
    script.ask("b", 8)
    script.prefill("b")
    script.decode("a", "b")  # the host's history is asked
    script.check(a=4, b=2)


def former_outputs_are_kept(patch: Patch) -> None:
    """A resumed request keeps what the worker knew of its output."""
    outputs: dict[str, list[int]] = {}
    leave, admit = Tenants._leave, RowSamplers.admit

    def left(self: Tenants, request_id: str) -> None:
        if request_id in self._requests:
            outputs[request_id] = self._requests[request_id].output
        leave(self, request_id)

    def admitted(self: RowSamplers, state: Any) -> None:
        state.output[:] = outputs.get(state.request_id, state.output)
        admit(self, state)

    patch.setattr(Tenants, "_leave", left)
    patch.setattr(RowSamplers, "admit", admitted)


@fault("#57", former_outputs_are_kept, overlap=False)
def a_request_returns_with_a_shorter_history(script: Script) -> None:
    """Else the first token after the resume is a stale one."""
    script.ask("a", 40)
    script.prefill("a")
    script.settle()
    script.decode("a")
    script.decode("a")
    script.preempt("a", forget_unread=True)  # the engine knows one token, the worker three
    script.prefill("a")
    script.decode("a")
    script.ask("b", 8)
    script.prefill("b")
    script.decode("a", "b")  # the host's history is asked
    script.check(a=4, b=2)


# Phases


def what_is_known_now_is_prefilled(patch: Patch) -> None:
    """A request is prefill work while it has tokens that are not computed, also those of its own steps."""
    rule = property(lambda state: state.computed < len(state.prompt) + len(state.output))
    patch.setattr(RequestState, "prefilling", rule)


@fault("#66, #67", what_is_known_now_is_prefilled)
def a_steady_decode_is_no_prefill(script: Script) -> None:
    """Else every decode step runs as a prefill of one token."""
    script.ask("a", 40)
    script.prefill("a")
    for _ in range(6):
        script.settle()
        script.decode("a")
    script.check(a=7)
    assert script.prefills() == 1


def only_the_prompt_is_prefilled(patch: Patch) -> None:
    """A request is prefill work until its prompt is computed, whatever it had generated."""
    patch.setattr(RequestState, "prefilling", property(lambda state: state.computed < len(state.prompt)))


@fault("#52, #54", only_the_prompt_is_prefilled)
def a_replay_goes_beyond_the_prompt(script: Script) -> None:
    """Else the second chunk, behind the prompt's end, runs as a decode step."""
    script.ask("a", 32)
    script.prefill("a")
    for _ in range(5):
        script.decode("a")
    script.settle()
    script.preempt("a")
    script.prefill(("a", 32))
    script.prefill("a")
    script.decode("a")
    script.check(a=8)


def who_has_output_decodes(patch: Patch) -> None:
    """A request with generated tokens is taken for a decode."""
    rule = property(lambda state: not state.output and state.computed < state.prefill_end)
    patch.setattr(RequestState, "prefilling", rule)


@fault("fork#326", who_has_output_decodes)
def all_requests_return_in_one_step(script: Script) -> None:
    """Else a batch of resumed requests alone is classed as a decode."""
    script.ask("a", 40)
    script.ask("b", 8)
    script.prefill("a", "b")
    script.decode("a", "b")
    script.settle()
    script.preempt("a")
    script.preempt("b")
    script.prefill("b", "a")
    script.decode("a", "b")
    script.check(a=4, b=4)


def prefixes_lie_a_block_off(patch: Patch) -> None:
    """A prefill begins a block behind what is cached, as if the last block of a hit counted twice."""

    def off(states: Any, counts: Any, tables: Any, alignment: int) -> PrefillInputs:
        inputs = prefill_inputs(states, counts, tables, alignment)
        inputs.start_pos[:] = np.where(inputs.start_pos > 0, inputs.start_pos + alignment, 0)
        inputs.start_pos[:] = np.minimum(inputs.start_pos, inputs.ends - 1)
        return inputs

    patch.setattr(runner_module, "prefill_inputs", off)


@fault("fork#415", prefixes_lie_a_block_off)
def prompts_meet_cached_prefixes(script: Script) -> None:
    """A hit that ends with a block, one of the whole prompt but its last token, and a chunk that ends anywhere."""
    first = script.ask("a", 64)
    script.prefill("a")
    script.settle()
    shared = list(first.blocks)
    script.ask("b", 80, prefix=first.prompt)
    script.prefill("b", cached=64, blocks=shared)
    script.ask("c", 64, prefix=first.prompt)
    script.prefill("c", cached=63, blocks=shared)
    script.decode("a", "b", "c")
    script.check(a=2, b=2, c=2)


# Rows and slots


def the_device_is_thought_to_know(patch: Patch) -> None:
    """Neither a prefill nor a new tenant makes the next decode step send its inputs."""
    patch.setattr(ReloadPlanner, "prefilled", lambda self: None)
    situation = Runner._situation

    def unchanged(self: Runner, group: DecodeGroup, *, on_device: bool) -> Any:
        now = situation(self, group, on_device=on_device)
        object.__setattr__(now, "layout", group.rows)
        object.__setattr__(now, "sampling", 0)
        return now

    patch.setattr(Runner, "_situation", unchanged)


@fault("#78, fork#449, fork#456, fork#458", the_device_is_thought_to_know)
def a_request_returns_into_its_row(script: Script) -> None:
    """Else the device decodes on from the inputs that it had before."""
    script.ask("a", 40)
    script.prefill("a")
    script.decode("a")
    script.decode("a")
    script.settle()
    script.preempt("a")
    script.prefill("a")
    script.decode("a")
    script.decode("a")
    script.check(a=6)


def the_place_of_sampling_is_ignored(patch: Patch) -> None:
    """What the device holds after a step sampled on the host counts as fresh."""
    plan = ReloadPlanner.plan

    def planned(self: ReloadPlanner, now: Any) -> ReloadPlan:
        if self._accepted is not None and self._accepted.layout == now.layout:
            return ReloadPlan(False, False, False, False)
        return plan(self, now)

    patch.setattr(ReloadPlanner, "plan", planned)


@fault("#45, #51, fork#460 to fork#466, tt-metal#51982", the_place_of_sampling_is_ignored)
def steps_are_sampled_on_the_host_and_on_the_device_by_turns(script: Script) -> None:
    """With a middle row that comes and goes. Else state moves on without the device hearing of it."""
    script.ask("a", 20)
    script.ask("b", 9, ON_HOST)
    script.ask("c", 33)
    script.prefill("a", "b", "c")
    for _ in range(3):
        script.decode("a", "b", "c")
    script.finish("b")
    for _ in range(3):
        script.decode("a", "c")
    script.ask("d", 5, ON_HOST)
    script.prefill("d")
    for _ in range(3):
        script.decode("a", "c", "d")
    script.check(a=10, b=4, c=10, d=4)


def rows_are_packed(patch: Patch) -> None:
    """A prefill names the slots 0, 1, ... whatever rows its requests have."""

    def packed(states: Any, counts: Any, tables: Any, alignment: int) -> PrefillInputs:
        inputs = prefill_inputs(states, counts, tables, alignment)
        object.__setattr__(inputs, "rows", list(range(len(inputs.rows))))
        return inputs

    patch.setattr(runner_module, "prefill_inputs", packed)


@fault("tt-metal#56095, #33, fork#454", rows_are_packed)
def a_later_prefill_has_other_slots(script: Script) -> None:
    """Else it lands in the slots of those who run."""
    script.ask("a", 20)
    script.ask("b", 9)
    script.prefill("a", "b")
    script.decode("a", "b")
    script.ask("c", 12)
    script.ask("d", 40)
    script.prefill("c", "d")
    script.decode("a", "b", "c", "d")
    script.check(a=3, b=3, c=2, d=2)


def padding_is_at_position_0(patch: Patch) -> None:
    """Rows that nobody computes are at position 0."""
    fill = DecodeBuffers.fill

    def filled(self: DecodeBuffers, rows: Any, positions: Any) -> Any:
        tokens, start_pos = fill(self, rows, positions)
        return tokens, np.maximum(start_pos, 0)

    patch.setattr(DecodeBuffers, "fill", filled)


@fault("tt-metal#45184, tt-metal#46432", padding_is_at_position_0)
def rows_without_a_request_are_padding(script: Script) -> None:
    """Else they compute, and write into a block."""
    script.ask("a", 20)
    script.prefill("a")
    script.decode("a")
    script.check(a=2)


def histories_are_packed(patch: Patch) -> None:
    """Histories are given in the order of the penalised requests, not by row."""
    view = Histories.view

    def packed(self: Histories) -> Any:
        return tuple(np.roll(table, -2, axis=0) for table in view(self))

    patch.setattr(Histories, "view", packed)


@fault("fork#479", histories_are_packed, vocabulary=40)
def a_penalised_request_sits_behind_a_gap(script: Script) -> None:
    """Its tokens are those that it gets alone, in row 0."""
    alone = script.ask("alone", 24, PENALISED)
    script.prefill("alone")
    for _ in range(20):
        script.decode("alone")
    script.settle()
    script.finish("alone")
    script.ask("a", 9)
    script.ask("b", 10)
    penalised = script.ask("c", 24, PENALISED, prefix=alone.prompt)
    script.prefill("a", "b", "c")
    script.decode("a", "b", "c")
    script.finish("b")
    for _ in range(19):
        script.decode("a", "c")
    script.settle()
    assert penalised.output == alone.output


def leavers_are_not_released(patch: Patch) -> None:
    """The model is not told that a request is gone."""
    patch.setattr(Runner, "_release", lambda self, request_id, row: None)


@fault("#118, #35, #37", leavers_are_not_released)
def a_slot_is_released_before_it_is_given_on(script: Script) -> None:
    """Once each, at the end and at a preemption. Else the state of a former request stays, or a live one's goes."""
    script.ask("a", 20)
    script.ask("b", 9)
    script.prefill("a", "b")
    script.decode("a", "b")
    script.settle()
    script.preempt("a")
    script.decode("b")
    script.prefill("a")
    script.finish("b")
    script.decode("a")
    script.check(a=4, b=3)
    assert script.calls.count("release_request") == 2


# Page tables


def tails_are_left(patch: Patch) -> None:
    """A row keeps the ids of its former tenant behind those of the new one."""

    def replace(self: PageTable, row: int, block_ids: Any) -> None:
        self.table[row, : len(block_ids)] = block_ids
        self.length[row] = len(block_ids)
        self.version += 1

    patch.setattr(PageTable, "clear", lambda self, row: None)
    patch.setattr(PageTable, "replace", replace)


@fault("#103, tt-metal#56324", tails_are_left)
def a_shorter_request_takes_a_row(script: Script) -> None:
    """Else it writes into blocks that belong to somebody else by now."""
    script.ask("long", 200)
    script.ask("b", 9)
    script.prefill("long", "b")
    script.decode("long", "b")
    script.settle()
    script.finish("long")
    script.ask("short", 9)
    script.prefill("short")
    for _ in range(3):
        script.decode("short", "b")
    script.check(short=4, b=5)


def tables_are_a_block_short(patch: Patch) -> None:
    """The width is rounded down."""
    init = PageTable.__init__
    patch.setattr(PageTable, "__init__", lambda self, rows, width, blocks: init(self, rows, width - 1, blocks))


@fault("fork#381, fork#390", tables_are_a_block_short, max_len=240)
def a_request_grows_to_the_end_of_a_length_that_is_no_multiple_of_a_block(script: Script) -> None:
    """Else the last block has no column."""
    script.ask("a", 222)
    script.prefill("a")
    for _ in range(17):
        script.decode("a")
    script.check(a=18)


@pytest.fixture(autouse=True)
def machine(monkeypatch: Patch) -> None:
    """Two devices: one for each lane."""
    monkeypatch.setenv("TT_HOST_CLUSTER", "N300")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_every_request_gets_the_tokens_that_it_gets_alone(fault: Fault) -> None:
    """The scenario, as the worker is."""
    with script(**fault.settings) as one:
        fault.scenario(one)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_scenario_notices_when_its_rule_is_broken(fault: Fault, monkeypatch: Patch) -> None:
    """With the rule broken as `fault.breaks` says: the strict mesh refuses a call, or tokens are wrong."""
    with monkeypatch.context() as broken:
        fault.breaks(broken)
        with script(**fault.settings) as one, pytest.raises((StepFailed, AssertionError)):
            fault.scenario(one)


def test_every_fault_says_who_met_it_what_happens_and_how_it_is_broken() -> None:
    assert all(fault.refs and fault.scenario.__doc__ and fault.breaks.__doc__ for fault in FAULTS)
