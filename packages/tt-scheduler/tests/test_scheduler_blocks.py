"""Block output: how many tokens a step emits, what is reserved, when a request ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler.blocks import ONE_TOKEN, TILE, BlockOutput, ends_in_flight

PLAIN = BlockOutput(8)
ADAPTIVE = BlockOutput(8, adaptive=True, max_prompt=100, extent=20)


def test_B1_every_step_of_the_plain_form_emits_a_block() -> None:
    assert (PLAIN.of_prefill, PLAIN.of_decode([5])) == (8, 8)


@pytest.mark.parametrize(("entered", "emitted"), [([5], 8), ([100], 8), ([101], 1), ([5, 6], 1)])
def test_B2_the_adaptive_form_gives_a_block_to_a_lone_row_of_a_short_prompt(entered: list[int], emitted: int) -> None:
    assert ADAPTIVE.of_prefill == 1
    assert ADAPTIVE.of_decode(entered) == emitted
    assert BlockOutput(8, adaptive=True).of_decode([10_000]) == 8


def test_B3_two_blocks_or_what_the_device_writes_are_reserved() -> None:
    assert PLAIN.lookahead == 16
    assert ADAPTIVE.lookahead == 20
    assert ONE_TOKEN.lookahead == 0


@given(st.integers(1, 600), st.integers(2, 256), st.integers(1, 1024))
def test_B4_a_request_has_room_for_whole_blocks_behind_whole_tiles(prompt: int, width: int, max_model_len: int) -> None:
    """The largest count of blocks that the context holds."""
    room = BlockOutput(width).room(prompt, max_model_len)
    tiles = -(-prompt // TILE) * TILE
    assert room % width == 0
    assert tiles + room <= max_model_len // TILE * TILE < tiles + room + width


@pytest.mark.parametrize(
    ("known", "in_flight", "ends"), [(10, 0, False), (10, 9, False), (10, 10, True), (12, 8, True), (26, 4, True)]
)
def test_B5_a_request_that_the_tokens_in_flight_end_is_not_scheduled_again(
    known: int, in_flight: int, ends: bool
) -> None:
    assert ends_in_flight(known, in_flight, ends_at=20, max_model_len=30) is ends


@pytest.mark.parametrize("entry", [None, {"width": 4, "adaptive": True, "max_prompt": 9, "extent": 3}])
def test_B6_without_an_entry_of_the_platform_a_step_emits_one_token(entry: object) -> None:
    assert BlockOutput.from_mapping(entry) == (BlockOutput(4, True, 9, 3) if entry else ONE_TOKEN)
