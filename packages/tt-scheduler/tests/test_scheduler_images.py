"""Images in chunks: a chunk never ends inside one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler.images import whole_images


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Images in their order, which do not overlap and may touch."""
    found, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=6)):
        found.append((at + gap, at + gap + length))
        at += gap + length
    return found


@given(spans(), st.integers(0, 150), st.integers(1, 100))
def test_P1_a_chunk_ends_inside_no_image_and_is_as_long_as_that_allows(
    images: list[tuple[int, int]], start: int, tokens: int
) -> None:
    taken = whole_images(images, start, tokens)
    assert 0 <= taken <= tokens
    assert taken == 0 or not any(first < start + taken < end for first, end in images)
    for longer in range(taken + 1, tokens + 1):
        assert any(first < start + longer < end for first, end in images)
