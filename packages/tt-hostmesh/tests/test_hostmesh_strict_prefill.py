"""Strict mode: every breach of the contract in a prefill call is refused, and says which clause it breaks."""

import numpy as np
import pytest
import torch

from tt_hostmesh import ContractError


def prompt(length, seed=0):
    return [(7 * i + length + seed) % 160 for i in range(length)]


def refused(driver, call, clause, text):
    with pytest.raises(ContractError, match=text) as caught:
        driver.model.prefill_forward(**call)
    assert caught.value.clause == clause
    assert caught.value.where == "LlamaForCausalLM.prefill_forward"


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


ARGUMENTS = {
    "int64 tokens": (lambda c: c | {"tokens": c["tokens"].long()}, "tokens must be int32"),
    "numpy tokens": (lambda c: c | {"tokens": c["tokens"].numpy()}, "tokens must be a torch tensor"),
    "numpy page table": (lambda c: c | {"page_table": c["page_table"].numpy()}, "page_table must be a torch tensor"),
    "flat page table": (lambda c: c | {"page_table": c["page_table"][0]}, r"page_table must have shape \[\*, \*\]"),
    "rows differ": (lambda c: c | {"tokens": c["tokens"][:1]}, r"tokens must have shape \[2, \*\]"),
    "no rows": (lambda c: c | {"page_table": c["page_table"][:0]}, "the call has no rows"),
    "float lengths": (lambda c: c | {"prompt_lens": np.array([20.0, 40.0])}, "prompt_lens must hold integers"),
    "missing length": (lambda c: c | {"prompt_lens": [20]}, "prompt_lens has 1 entries for 2 rows"),
    "tuple of starts": (lambda c: c | {"start_pos": (0, 0)}, "start_pos must be a list, numpy array or tensor"),
    "bool starts": (lambda c: c | {"start_pos": [False, False]}, "start_pos must hold integers"),
    "start at end": (lambda c: c | {"start_pos": ints(20, 0)}, "row 0 has start_pos 20 and prompt_lens 20"),
    "start beyond end": (lambda c: c | {"start_pos": ints(0, 41)}, "row 1 has start_pos 41 and prompt_lens 40"),
    "negative start": (lambda c: c | {"start_pos": ints(-1, 0)}, "row 0 has start_pos -1"),
    "narrow tokens": (lambda c: c | {"tokens": c["tokens"][:, :39]}, "tokens is 39 wide, row 1 ends at 40"),
    "slot twice": (lambda c: c | {"empty_slots": [1, 1]}, "names a slot twice"),
    "slot beyond": (lambda c: c | {"empty_slots": [1, 4]}, r"slots are 0\.\.3"),
    "negative slot": (lambda c: c | {"empty_slots": [1, -1]}, r"slots are 0\.\.3"),
    "missing slot": (lambda c: c | {"empty_slots": [1]}, "empty_slots has 1 entries for 2 rows"),
    "unknown keyword": (
        lambda c: c | {"cross_page_table": None},
        "unknown keyword cross_page_table: allowed are",
    ),
    "other cache": (lambda c: c | {"kv_cache": None}, "kv_cache is not the object"),
    "narrow page table": (lambda c: c | {"page_table": c["page_table"][:, :2]}, "has 2 columns, a row ends at 40"),
}


@pytest.mark.parametrize("breach", ARGUMENTS)
def test_wrong_arguments_are_refused(load, breach):
    driver = load()
    call = driver.prefill_call([driver.admit(prompt(20), 0), driver.admit(prompt(40), 1)])
    change, text = ARGUMENTS[breach]
    refused(driver, change(call), "1.5", text)


CELLS = {
    "token beyond vocabulary": ("tokens", (1, 39), 160, "tokens row 1 holds the token id 160"),
    "negative token": ("tokens", (0, 0), -3, "tokens row 0 holds the token id -3"),
    "block beyond pool": ("page_table", (1, 0), 64, "row 1 column 0 is block 64, the pool has 64"),
    "missing block": ("page_table", (1, 1), 0, "row 1 column 1 is 0, the padding block"),
    "stale tail": ("page_table", (0, 5), 9, "row 0 has a stale tail"),
    "tail of another row": ("page_table", (0, 2), 4, "row 0 lists beyond its end a block that another row"),
}


@pytest.mark.parametrize("breach", CELLS)
def test_wrong_cells_are_refused(load, breach):
    driver = load()
    call = driver.prefill_call([driver.admit(prompt(20), 0), driver.admit(prompt(40), 1)])
    name, cell, value, text = CELLS[breach]
    call[name][cell] = value
    refused(driver, call, "1.5", text)


def test_what_is_allowed_is_not_refused(load):
    """Cells of `tokens` beyond a row's end may hold anything; lengths may be a list; slots may be left out."""
    driver = load()
    call = driver.prefill_call([driver.admit(prompt(20), 0), driver.admit(prompt(40), 1)])
    call["tokens"][0, 20:] = 4000
    call |= {"prompt_lens": [20, 40], "start_pos": None, "empty_slots": None}
    assert driver.model.prefill_forward(**call).shape == (2, 1, 160)


def test_more_rows_than_the_model_has_are_refused(load):
    driver = load(batch=1)
    driver.lane = lambda row: 0
    call = driver.prefill_call([driver.admit(prompt(20), 0), driver.admit(prompt(40), 1)])
    refused(driver, call, "1.5", "2 rows in a model of max_batch_size 1")


def test_a_row_beyond_max_seq_len_is_refused(load):
    driver = load(max_len=40)
    refused(driver, driver.prefill_call([driver.admit(prompt(41), 0)]), "1.5", "row 0 ends at 41, max_seq_len is 40")


def test_the_page_table_keeps_its_width(load):
    driver = load()
    driver.warm_up()
    driver.width = 8
    refused(driver, driver.prefill_call([driver.admit(prompt(20), 0)]), "1.5", "has 8 columns, before it had 16")


def test_a_page_table_wider_than_the_pool_is_refused(load):
    driver = load(blocks=8)
    driver.width = 9
    refused(driver, driver.prefill_call([driver.admit(prompt(20), 0)]), "1.5", "9 columns, the pool has 8 blocks")


def test_a_start_behind_positions_that_were_never_written_is_refused(load):
    driver = load()
    request = driver.admit(prompt(40), 0, computed=32)
    refused(driver, driver.prefill_call([request]), "1.5", "row 0 starts at 32, but position 0 was never written")


def test_a_chunk_that_skips_positions_is_refused(load):
    driver = load()
    request = driver.admit(prompt(40), 0)
    driver.prefill([request], [20], final=False)
    request.computed = 25
    refused(driver, driver.prefill_call([request]), "1.5", "row 0 starts at 25, but position 20 was never written")


def test_a_cached_prefix_of_other_tokens_is_refused(load):
    driver = load()
    first = driver.admit(prompt(40), 0)
    driver.prefill([first])
    second = driver.admit([1, *prompt(40)[1:]], 1, blocks=first.blocks[:2], computed=32)
    refused(driver, driver.prefill_call([second]), "1.5", "block 1 in column 0 holds other tokens than the row's")


def test_a_cached_block_behind_another_prefix_is_refused(load, tools):
    """The block's own tokens fit, but keys and values depend on everything before them."""
    driver = load()
    tail = prompt(tools.block)
    first, second = driver.admit([1] * 16 + tail + [5], 0), driver.admit([2] * 16 + tail + [5], 1)
    driver.prefill([first, second])
    third = driver.admit([1] * 16 + tail + [6], 2, blocks=[first.blocks[0], second.blocks[1]], computed=32)
    refused(driver, driver.prefill_call([third]), "1.5", "in column 1 holds other tokens")


def test_a_prefix_with_generated_tokens_is_known_too(load, tools):
    """A second turn finds blocks that decode steps filled, some of them with tokens sampled on the device."""
    driver = load()
    first = driver.admit(prompt(20), 0)
    driver.prefill([first], sampling=tools.params(1))
    for _ in range(20):
        driver.decode(tools.params(4))
    history = first.tokens[:32]
    second = driver.admit([*history, 7], 1, blocks=first.blocks[:2], computed=32)
    driver.prefill([second])
    third = driver.admit([*history[:31], (history[31] + 1) % 160, 7], 2, blocks=first.blocks[:2], computed=32)
    refused(driver, driver.prefill_call([third]), "1.5", "in column 1 holds other tokens")


def test_a_prefix_may_not_end_inside_a_block_of_another_row(load):
    driver = load()
    first = driver.admit(prompt(40), 0)
    driver.prefill([first])
    second = driver.admit([*prompt(40)[:20], 1, 2, 3], 1, blocks=first.blocks[:2], computed=20)
    refused(driver, driver.prefill_call([second]), "1.5", "row 0 starts at 20, inside block 2 that slot 0 wrote")


def test_full_shared_blocks_may_be_computed_again(load, tools):
    """A plugin rounds start_pos down to 32: the cached positions in between are computed anew, to the same."""
    driver = load()
    common = prompt(48)
    first = driver.admit([*common, 1], 0)
    driver.prefill([first])
    second = driver.admit([*common, 2, 3], 1, blocks=first.blocks[:3], computed=32)
    driver.prefill([second])
    driver.decode()


def test_writing_into_a_block_that_another_row_of_the_call_uses_is_refused(load):
    driver = load()
    first = driver.admit(prompt(20), 0)
    second = driver.admit(prompt(30, 1), 1)
    driver.grow(first, 20)
    second.blocks = first.blocks[:1]
    refused(driver, driver.prefill_call([first, second]), "1.5", "into block 1, which slot 0 still uses")


def test_writing_into_a_block_of_a_live_request_is_refused_once_releases_are_reported(load):
    """Without release_request nobody knows who is alive; with it a slot that was not released is."""
    driver = load()
    first, other = driver.admit(prompt(20), 0), driver.admit(prompt(20, 3), 3)
    driver.prefill([first, other])
    driver.model.release_request(3)
    thief = driver.admit(prompt(18, 9), 1, blocks=first.blocks)
    refused(driver, driver.prefill_call([thief]), "1.5", "which slot 0 still uses")


def test_a_live_slot_takes_no_new_request(load):
    driver = load()
    first, other = driver.admit(prompt(20), 0), driver.admit(prompt(20, 3), 3)
    driver.prefill([first, other])
    driver.model.release_request(3)
    refused(driver, driver.prefill_call([driver.admit(prompt(9), 0)]), "1.9", "was not given to release_request")


def test_a_live_slot_takes_its_own_next_chunk(load):
    driver = load()
    first, other = driver.admit(prompt(40), 0), driver.admit(prompt(20, 3), 3)
    driver.prefill([first, other], [20, 20], final=False)
    driver.model.release_request(3)
    driver.prefill([first])


def test_parameters_that_the_device_cannot_take_are_refused(load, tools):
    driver = load()
    call = driver.prefill_call([driver.admit(prompt(20), 0)], sampling=tools.params(1, temperature=1.0, top_k=64))
    refused(driver, call, "1.8", "row 0 samples with top_k 64")
    refused(driver, call | {"sampling_params": tools.params(4)}, "1.8", "has 4 entries for 1 rows")


def test_cells_beyond_a_row_s_end_are_overwritten(load):
    """Some adapters pad in place. A plugin that hands out its own history sees its tokens destroyed."""
    driver = load()
    call = driver.prefill_call([driver.admit(prompt(20), 0), driver.admit(prompt(40), 1)])
    driver.model.prefill_forward(**call)
    assert call["tokens"][0].tolist() == prompt(20) + [-1] * 20
    assert call["tokens"][1].tolist() == prompt(40)


def test_a_traced_prefill_needs_a_trace_region(load):
    driver = load(trace=0)
    refused(driver, driver.prefill_call([driver.admit(prompt(20), 0)]), "3.2", "opened without a trace region")
