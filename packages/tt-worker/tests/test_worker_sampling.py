"""Rows and their samplers stay in step."""

from __future__ import annotations

from typing import Any

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_worker.request import RequestState
from tt_worker.sampling import RowSamplers


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
