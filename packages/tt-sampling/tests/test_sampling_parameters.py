"""The device's parameter object and the row table behind it (tt-metal contract 1.8)."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_sampling.device import NO_LOGPROBS, PADDING, DeviceParams, device_row
from tt_sampling.parameters import RowSampling, TTSamplingParams

VOCAB = 1000

rows = st.builds(
    RowSampling,
    temperature=st.floats(0.0, 2.0),
    top_k=st.integers(-1, 2 * VOCAB),
    top_p=st.floats(0.01, 1.0),
    presence_penalty=st.floats(-2.0, 2.0),
    frequency_penalty=st.floats(-2.0, 2.0),
    repetition_penalty=st.floats(0.1, 2.0),
    seed=st.none() | st.integers(-(2**70), 2**70),
    logprobs=st.none() | st.integers(-1, 20),
)


def test_the_device_object_has_exactly_the_nine_fields() -> None:
    """Models rebuild their own class from every field, so one more is a TypeError there."""
    assert [field.name for field in dataclasses.fields(TTSamplingParams)] == [
        "temperature",
        "top_k",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
        "num_logprobs",
        "enable_log_probs",
    ]
    bare = TTSamplingParams(temperature=[1.0], top_k=[1], top_p=[1.0])
    assert (bare.presence_penalty, bare.frequency_penalty, bare.repetition_penalty) == (0.0, 0.0, 1.0)
    assert (bare.seed, bare.num_logprobs, bare.enable_log_probs) == (0, None, None)


@given(rows)
def test_every_value_is_a_python_scalar_in_the_device_range(row: RowSampling) -> None:
    """Models take lists of python scalars; a seed must fit the signed 64-bit seed tensor."""
    made = device_row(row, VOCAB)
    assert 1 <= made.top_k <= VOCAB
    assert 0.0 <= made.top_p <= 1.0
    assert made.seed is None or -(2**63) <= made.seed < 2**63
    assert NO_LOGPROBS <= made.num_logprobs <= VOCAB
    for value, kind in zip(dataclasses.astuple(made), (float, int, float, float, float, float, int, int), strict=True):
        assert value is None or type(value) is kind


@pytest.mark.parametrize("top_k", [0, -1, VOCAB, VOCAB + 1])
def test_no_limit_on_top_k_is_the_vocabulary(top_k: int) -> None:
    assert device_row(RowSampling(temperature=0.7, top_k=top_k), VOCAB).top_k == VOCAB


def test_top_k_1_gets_top_p_0_so_that_ties_do_not_decide() -> None:
    """tt-metal#46827. Fails when `device_row` keeps top_p."""
    made = device_row(RowSampling(temperature=0.7, top_k=1, top_p=0.9), VOCAB)
    assert (made.top_k, made.top_p) == (1, 0.0)


def test_a_greedy_row_has_one_candidate() -> None:
    """A greedy row with the whole vocabulary was once drawn from a 32-token nucleus."""
    made = device_row(RowSampling(temperature=0.0, top_k=0), VOCAB)
    assert (made.temperature, made.top_k, made.top_p) == (0.0, 1, 0.0)


@pytest.mark.parametrize(
    ("seed", "sent"), [(None, None), (0, 0), (-7, -7), (2**40 + 1, 2**40 + 1), (2**63, -(2**63)), (2**64 - 1, -1)]
)
def test_seeds_are_signed_64_bit(seed: int | None, sent: int | None) -> None:
    assert device_row(RowSampling(seed=seed), VOCAB).seed == sent


@pytest.mark.parametrize(
    ("asked", "sent", "enabled"), [(None, -2, False), (0, 0, True), (5, 5, True), (-1, VOCAB, True)]
)
def test_logprobs_0_is_a_request_and_minus_1_the_vocabulary(asked: int | None, sent: int, enabled: bool) -> None:
    params = DeviceParams(1, VOCAB)
    params.set(0, RowSampling(logprobs=asked))
    view = params.view()
    assert (view.num_logprobs, view.enable_log_probs) == ([sent], [enabled])


def test_padding_rows_are_neutral() -> None:
    view = DeviceParams(3, VOCAB).view()
    assert view == TTSamplingParams(
        temperature=[0.0] * 3,
        top_k=[1] * 3,
        top_p=[1.0] * 3,
        presence_penalty=[0.0] * 3,
        frequency_penalty=[0.0] * 3,
        repetition_penalty=[1.0] * 3,
        seed=[None] * 3,
        num_logprobs=[NO_LOGPROBS] * 3,
        enable_log_probs=[False] * 3,
    )


def test_a_steady_step_builds_nothing() -> None:
    """Fails when `view` rebuilds although no row changed."""
    params = DeviceParams(4, VOCAB)
    params.set(1, RowSampling(temperature=0.5))
    view = params.view()
    assert params.view() is view
    params.clear(2)
    assert params.view() is view
    params.set(2, RowSampling(temperature=0.5))
    assert params.view() is not view


def test_a_cleared_row_is_padding_again() -> None:
    params = DeviceParams(2, VOCAB)
    params.set(0, RowSampling(temperature=0.5, repetition_penalty=1.3))
    assert params.penalised
    params.clear(0)
    assert params.view() == DeviceParams(2, VOCAB).view()
    assert not params.penalised


def test_packed_rows_keep_the_order_of_the_call() -> None:
    params = DeviceParams(4, VOCAB)
    params.set(3, RowSampling(temperature=0.3, frequency_penalty=0.5))
    params.set(1, RowSampling(temperature=0.1))
    assert params.packed([3, 1]).temperature == [0.3, 0.1]
    assert params.any_penalised([3, 1])
    assert not params.any_penalised([1])


def test_the_padding_row_is_what_a_fresh_table_holds() -> None:
    assert DeviceParams(1, VOCAB).packed([0]).top_k == [PADDING.top_k]
