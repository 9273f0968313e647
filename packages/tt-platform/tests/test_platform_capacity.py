"""KV blocks and context lengths."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_platform.capacity import (
    CapacityError,
    Serving,
    kv_blocks,
    plan_context,
    publish,
    rows_for,
    tokens_all_users,
)

SERVING = Serving("m", num_devices=8, tt_data_parallel=1, max_model_len=4096, max_num_seqs=32)


@pytest.mark.parametrize(
    ("tokens", "block", "seqs", "window", "blocks"),
    [
        (131072, 64, 32, None, 2048 + 32),
        (131072, 64, 32, 0, 2048 + 32),
        (131000, 64, 1, None, 2048),  # (131000 + 64) / 64 = 2047.9
        (1, 64, 1, None, 2),
        (131072, 64, 4, 1024, 2048 + 4 + 1024 * 4 * 8 // 64),
    ],
)
def test_blocks_hold_the_budget_and_the_headroom(tokens, block, seqs, window, blocks):
    assert kv_blocks(tokens, block, seqs, window) == blocks


@given(st.integers(1, 10**7), st.sampled_from([16, 32, 64, 128]), st.integers(1, 64))
def test_every_user_can_waste_one_block_and_the_budget_still_fits(tokens, block, seqs):
    blocks = kv_blocks(tokens, block, seqs)
    assert blocks * block >= tokens + seqs * block
    assert (blocks - 1) * block < tokens + seqs * block


def test_both_ways_of_publishing_agree():
    published = publish(2080, 1024)
    assert published.num_gpu_blocks_override == 2080
    assert published.available_bytes // 1024 == 2080


def test_the_hook_is_told_everything_by_keyword():
    class Model:
        @classmethod
        def get_max_tokens_all_users(cls, **told):
            assert told == {
                "model_name": "m",
                "num_devices": 8,
                "tt_data_parallel": 1,
                "max_model_len": 4096,
                "max_num_seqs": 32,
            }
            return 65536

    assert tokens_all_users(Model, SERVING) == 65536


def test_a_model_without_the_hook_gets_the_default_and_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "vllm.tt"):
        assert tokens_all_users(type("Plain", (), {}), SERVING) == 131072
    assert "Setting max_tokens_all_users=131072" in caplog.text
    assert "Plain" in caplog.text


def test_an_attribute_error_inside_the_hook_is_not_a_missing_hook():
    class Model:
        @classmethod
        def get_max_tokens_all_users(cls, **told):
            return cls.table["N300"]  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="table"):
        tokens_all_users(Model, SERVING)


@pytest.mark.parametrize("tokens", [0, -1, None, 1.5, "131072", True])
def test_a_budget_that_is_no_positive_number_is_refused(tokens):
    model = type("Odd", (), {"get_max_tokens_all_users": classmethod(lambda cls, **told: tokens)})
    with pytest.raises(CapacityError, match=r"Odd\.get_max_tokens_all_users returned"):
        tokens_all_users(model, SERVING)


def test_a_length_that_fits_is_used_as_given():
    plan = plan_context(4096, 131072, 131072)
    assert (plan.max_model_len, plan.concurrency) == (4096, 32.0)


def test_a_length_that_exceeds_the_pool_is_refused_with_what_would_fit():
    with pytest.raises(CapacityError, match=r"--max-model-len 200000 does not fit.*at most 131072"):
        plan_context(200000, 131072, 131072)


def test_minus_one_fits_the_length_to_the_pool():
    assert plan_context(-1, 262144, 131072).max_model_len == 131072
    assert plan_context(-1, 4096, 131072).max_model_len == 4096


def test_an_omitted_length_is_the_checkpoints_and_may_not_fit():
    assert plan_context(None, 8192, 131072).max_model_len == 8192
    with pytest.raises(CapacityError, match=r"the checkpoint's max_model_len 262144"):
        plan_context(None, 262144, 131072)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_an_explicit_length_is_never_made_smaller(requested, pool):
    try:
        assert plan_context(requested, 8192, pool).max_model_len == requested
    except CapacityError:
        assert requested > pool


@given(st.integers(1, 100), st.lists(st.integers(1, 64), max_size=6))
def test_rows_are_the_smallest_batch_of_the_model_that_holds_the_sequences(sequences: int, sizes: list[int]) -> None:
    rows = rows_for(sequences, sizes)
    assert rows >= sequences
    assert rows in sizes or (rows == sequences and all(size < sequences for size in sizes))
    assert not any(sequences <= size < rows for size in sizes)
