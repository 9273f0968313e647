"""Request state: which tokens, and when a request is still prefill work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_worker.inputs import DecodeBuffers, alignment_of, prefill_inputs
from tt_worker.pages import PageTable
from tt_worker.request import RequestState


def state(prompt: list[int], output: list[int], computed: int = 0, row: int = 0) -> RequestState[None]:
    return RequestState("r", row, prompt, list(output), len(prompt) + len(output), computed, None)


@pytest.mark.parametrize(
    ("declared", "recurrent", "alignment"), [(None, False, 32), (1, False, 1), (128, False, 32), (None, True, 1)]
)
def test_W10_a_state_that_goes_forward_only_computes_no_token_twice(
    declared: int | None, recurrent: bool, alignment: int
) -> None:
    assert alignment_of(declared, recurrent=recurrent) == alignment


@given(st.lists(st.integers(0, 99), min_size=1), st.lists(st.integers(0, 99)), st.data())
def test_tokens_are_prompt_and_output_in_one_sequence(
    prompt: list[int], output: list[int], data: st.DataObject
) -> None:
    both = prompt + output
    start = data.draw(st.integers(0, len(both)))
    end = data.draw(st.integers(start, len(both)))
    request = state(prompt, output)
    assert request.tokens(start, end) == both[start:end]
    for position, token in enumerate(both):
        assert request.token_at(position) == token


def test_a_steady_decode_is_not_prefill_work() -> None:
    """One token remains to be computed at every step; the prompt is done (#66). Fails when the test is computed <
    tokens."""
    request = state([1, 2, 3], [], computed=3)
    request.output.append(4)
    assert not request.prefilling


def test_a_replay_beyond_the_prompt_is_prefill_work() -> None:
    """Fails when the test is computed < len(prompt) (#52)."""
    request = state([1, 2, 3], [4, 5, 6], computed=4)
    assert request.prefilling
    request.computed = 6
    assert not request.prefilling


def test_a_last_chunk_of_one_token_is_prefill_work() -> None:
    """Fails when the test is computed + 1 < tokens."""
    assert state([1, 2, 3], [], computed=2).prefilling


def test_prefill_inputs_hold_everything_up_to_each_row_s_end() -> None:
    pages = PageTable(4, 3, 9)
    pages.replace(2, [5, 6])
    pages.replace(0, [1])
    states = [state(list(range(70)), [], computed=40, row=2), state([7, 8], [9], row=0)]
    inputs = prefill_inputs(states, [20, 3], (pages.packed([2, 0]),), alignment=32)
    assert inputs.tokens.dtype == np.int32
    assert inputs.tokens[0, :60].tolist() == list(range(60))
    assert inputs.tokens[1, :3].tolist() == [7, 8, 9]
    assert inputs.ends.tolist() == [60, 3]
    assert inputs.start_pos.tolist() == [32, 0], "40 is rounded down to a multiple of 32"
    assert inputs.page_tables[0].tolist() == [[5, 6, 0], [1, 0, 0]]
    assert inputs.rows == [2, 0]


def test_decode_inputs_are_neutral_on_free_rows_and_not_shared_with_the_last_step() -> None:
    """Fails when a buffer keeps the last step's rows, or when the next step overwrites what the device still reads."""
    buffers = DecodeBuffers(4)
    pair, first = [1, 3], [0]
    tokens, positions = buffers.fill(pair, [10, 20])
    tokens[pair, 0] = 5
    assert positions.tolist() == [-1, 10, -1, 20]
    for step in range(4):  # through the whole ring and into the pair's buffer again
        later, at = buffers.fill(first, [step])
        assert at.tolist() == [step, -1, -1, -1]
        assert later.tolist() == [[0]] * 4
        if step < 2:
            assert (tokens[:, 0].tolist(), positions.tolist()) == ([0, 5, 0, 5], [-1, 10, -1, 20])
