"""The seed contract: a draw depends on (stream, index) alone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_sampling.seeds import Streams, draw_bits, signed64, uniform

streams = st.integers(-(2**63), 2**63 - 1)
indices = st.integers(0, 2**40)


@given(streams, indices, st.integers(0, 8))
def test_a_uniform_number_lies_inside_the_open_interval(stream: int, index: int, attempt: int) -> None:
    assert 0.0 < uniform(stream, index, attempt) < 1.0


@given(streams, indices)
def test_neighbouring_draws_and_streams_differ(stream: int, index: int) -> None:
    assert len({draw_bits(stream, index), draw_bits(stream, index + 1), draw_bits(stream + 1, index)}) == 3


@given(st.integers(-(2**70), 2**70))
def test_seeds_fold_into_signed_64_bit(seed: int) -> None:
    assert -(2**63) <= signed64(seed) < 2**63
    assert (signed64(seed) - seed) % 2**64 == 0


def test_unseeded_requests_differ_from_one_another_and_from_small_seeds() -> None:
    streams = Streams(0, 0)
    found = {streams.of(None) for _ in range(1000)}
    assert len(found) == 1000
    assert found.isdisjoint(range(-1000, 1000))


def test_a_launch_is_reproducible_and_ranks_differ() -> None:
    assert Streams(3, 0).of(None) == Streams(3, 0).of(None)
    assert Streams(3, 0).of(None) != Streams(3, 1).of(None)


def test_a_seeded_request_does_not_depend_on_what_came_before() -> None:
    streams = Streams(0)
    streams.of(None)
    assert streams.of(2**40 + 1) == Streams(1).of(2**40 + 1) == 2**40 + 1
    assert streams.of(-5) == -5


def test_uniform_numbers_are_uniform() -> None:
    """Mean and correlation of neighbours within five standard deviations."""
    count = 20_000
    drawn = [uniform(7, index) for index in range(count)]
    assert abs(sum(drawn) / count - 0.5) < 5 * (1 / 12 / count) ** 0.5
    pairs = sum((a - 0.5) * (b - 0.5) for a, b in itertools.pairwise(drawn)) / count
    assert abs(pairs) < 5 / 12 / count**0.5


@given(st.lists(st.tuples(streams, indices), min_size=1, max_size=8), st.integers(0, 8))
def test_the_batched_form_gives_the_same_numbers(draws: list[tuple[int, int]], attempt: int) -> None:
    torch = pytest.importorskip("torch")
    from tt_sampling.host import noise

    bases = torch.tensor([noise.base(stream) for stream, _ in draws])
    bits = noise.draw_bits(bases, torch.tensor([index for _, index in draws]))
    assert bits.tolist() == [signed64(draw_bits(stream, index)) for stream, index in draws]
    assert noise.uniform(bits, attempt).tolist() == [uniform(stream, index, attempt) for stream, index in draws]
