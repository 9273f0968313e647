"""Strict mode: every breach of the contract in a decode call is refused, and says which clause it breaks."""

import dataclasses

import numpy as np
import pytest
import torch

from tt_hostmesh import ContractError


def prompt(length, seed=0):
    return [(7 * i + length + seed) % 160 for i in range(length)]


@pytest.fixture
def start(load, tools):
    """start(protocol) -> driver with a 20-token row 0, a 40-token row 2, and one device-sampled step behind it."""

    def make(protocol="V1", **keywords):
        driver = load(getattr(tools, protocol), **keywords)
        requests = [driver.admit(prompt(20), 0), driver.admit(prompt(40), 2)]
        driver.prefill(requests, sampling=tools.params(2))
        driver.decode(tools.params(driver.batch))
        return driver

    return make


def refused(driver, call, clause, text):
    with pytest.raises(ContractError, match=text) as caught:
        driver.model.decode_forward(**call)
    assert caught.value.clause == clause
    assert caught.value.where == f"{type(driver.model).__name__}.decode_forward"
    assert f"tt-metal contract {clause}" in str(caught.value)


def changed(tensor, *writes):
    for index, value in writes:
        tensor[index] = value
    return tensor


SHAPES = {
    "no tokens column": (lambda c: c | {"tokens": c["tokens"][:, 0]}, r"tokens must have shape \[4, 1\]"),
    "fewer rows": (lambda c: c | {"tokens": c["tokens"][:3]}, r"tokens must have shape \[4, 1\]"),
    "more rows": (lambda c: c | {"start_pos": torch.full((5,), -1, dtype=torch.int32)}, r"start_pos must have shape"),
    "page table rows": (lambda c: c | {"page_table": c["page_table"][:2]}, r"page_table must have shape \[4, \*\]"),
    "int64 tokens": (lambda c: c | {"tokens": c["tokens"].long()}, "tokens must be int32, not int64"),
    "int64 positions": (lambda c: c | {"start_pos": c["start_pos"].long()}, "start_pos must be int32"),
    "float page table": (lambda c: c | {"page_table": c["page_table"].float()}, "page_table must be int32"),
    "numpy page table": (lambda c: c | {"page_table": c["page_table"].numpy()}, "page_table must be a torch tensor"),
    "another device": (lambda c: c | {"tokens": c["tokens"].to("meta")}, "tokens must be on the host"),
    "narrow page table": (lambda c: c | {"page_table": c["page_table"][:, :4]}, "has 4 columns, before it had 16"),
    "trace flag": (lambda c: c | {"enable_trace": 1}, "enable_trace must be True or False"),
    "unknown keyword": (lambda c: c | {"images": None}, "unknown keyword images"),
    "other cache": (lambda c: c | {"kv_cache": list(c["kv_cache"])}, "kv_cache is not the object"),
}


@pytest.mark.parametrize("breach", SHAPES)
def test_wrong_types_shapes_and_keywords_are_refused(start, tools, breach):
    driver = start()
    change, text = SHAPES[breach]
    refused(driver, change(driver.decode_call(tools.params(4))), "1.6", text)


ROWS = {
    "padding position": (lambda c: changed(c["start_pos"], (1, -2)), "padding rows have start_pos -1"),
    "padding token": (lambda c: changed(c["tokens"], (1, 5)), "padding rows have token 0, row 1"),
    "padding page table": (lambda c: changed(c["page_table"], ((1, 0), 9)), "padding rows have an empty page table"),
    "token beyond vocabulary": (lambda c: changed(c["tokens"], (0, 160)), "token id 160, the vocabulary has 160"),
    "negative token": (lambda c: changed(c["tokens"], (0, -1)), "token id -1"),
    "block beyond pool": (lambda c: changed(c["page_table"], ((0, 0), 64)), "block 64, the pool has 64"),
    "negative block": (lambda c: changed(c["page_table"], ((0, 0), -1)), "block -1, the pool has 64"),
    "missing block": (lambda c: changed(c["page_table"], ((2, 1), 0)), "row 2 column 1 is 0"),
    "stale tail": (lambda c: changed(c["page_table"], ((0, 2), 30), ((0, 3), 31)), "row 0 has a stale tail: 2 block"),
    "tail after a hole": (lambda c: changed(c["page_table"], ((0, 3), 31)), "row 0 has a stale tail"),
    "tail of another row": (
        lambda c: changed(c["page_table"], ((0, 2), int(c["page_table"][2, 1]))),
        "lists beyond its end a block that another row",
    ),
    "moved block": (lambda c: changed(c["page_table"], ((0, 0), 50)), "blocks of a running request do not move"),
    "hole": (lambda c: changed(c["start_pos"], (0, 25)), "decodes at 25, but slot 0 is written up to 20: a hole"),
    "repeated position": (lambda c: changed(c["start_pos"], (0, 20)), "a step before has computed"),
    "row without prefill": (
        lambda c: changed(c["start_pos"], (1, 3)) is None or changed(c["page_table"], ((1, 0), 40)),
        "no prefill ever filled slot 1",
    ),
}


@pytest.mark.parametrize("breach", ROWS)
def test_rows_that_do_not_fit_the_cache_are_refused(start, breach):
    """The call is sampled on the host, so that all its inputs are loaded."""
    driver = start()
    call = driver.decode_call()
    change, text = ROWS[breach]
    change(call)
    refused(driver, call, "1.6", text)


def test_one_block_of_lookahead_is_no_stale_tail(start):
    driver = start()
    call = driver.decode_call()
    call["page_table"][0, 2] = driver.free[0][-1]
    driver.model.decode_forward(**call)


def test_a_position_at_max_seq_len_is_refused(load):
    driver = load(max_len=46)
    driver.prefill([driver.admit(prompt(45), 0)])
    driver.decode()
    refused(driver, driver.decode_call(), "1.6", "row 0 is at or beyond max_seq_len 46")


def test_a_block_that_is_written_belongs_to_one_row(load):
    """Two requests come to the end of a block and are given the same next one."""
    driver = load()
    first, second = driver.admit(prompt(16), 0), driver.admit(prompt(16, 1), 1)
    driver.prefill([first, second])
    first.blocks.append(40)
    second.blocks.append(40)
    refused(driver, driver.decode_call(), "1.6", "which another row of the call uses too")


def test_a_row_whose_block_was_given_away_is_refused(load):
    """A prefill takes a block of a request that still runs, while that request sits out the step."""
    driver = load()
    victim = driver.admit(prompt(20), 0)
    driver.prefill([victim])
    thief = driver.admit(prompt(18, 5), 1, blocks=victim.blocks)
    driver.prefill([thief])
    driver.live.pop(1)
    refused(driver, driver.decode_call(), "1.6", "was overwritten by slot 1")


def test_full_blocks_of_a_common_prefix_may_be_shared(load, tools):
    driver = load()
    first = driver.admit(prompt(40), 0)
    driver.prefill([first])
    second = driver.admit([*prompt(40)[:32], 1, 2, 3], 1, blocks=first.blocks[:2], computed=32)
    driver.prefill([second])
    driver.decode()


COMMANDS_V1 = {
    "both reloads": ({"reload_inputs": True, "reload_page_table": True}, "are both set"),
    "reset without inputs": ({"reset_sampling_state": True}, "reset_sampling_state without reload_inputs"),
    "legacy command": ({"reset_batch": True}, "reset_batch sent to an adapter of decode protocol v1"),
    "command missing": ({"reload_page_table": None}, "reload_page_table missing"),
    "no bool": ({"reload_inputs": 1}, "reload_inputs must be True or False, not 1"),
}


@pytest.mark.parametrize("breach", COMMANDS_V1)
def test_commands_that_contradict_protocol_v1_are_refused(start, tools, breach):
    driver = start()
    change, text = COMMANDS_V1[breach]
    refused(driver, driver.decode_call(tools.params(4)) | change, "1.6", text)


COMMANDS_LEGACY = {
    "v1 command": ({"reload_inputs": False}, "reload_inputs sent to an adapter of the legacy protocol"),
    "reset missing": ({"reset_batch": None}, "reset_batch is missing"),
    "no bool": ({"reset_batch": "yes"}, "reset_batch must be True or False"),
}


@pytest.mark.parametrize("breach", COMMANDS_LEGACY)
def test_commands_that_contradict_the_legacy_protocol_are_refused(start, tools, breach):
    driver = start("Legacy")
    change, text = COMMANDS_LEGACY[breach]
    refused(driver, driver.decode_call(tools.params(4)) | change, "1.6", text)


def test_sampling_commands_without_parameters_are_refused(start):
    driver = start()
    call = driver.decode_call(reload_sampling_params=True)
    refused(driver, call, "1.6", "but the call has no sampling_params")


def test_a_host_sampled_step_reloads_its_inputs(start):
    driver = start()
    refused(driver, driver.decode_call(reload_inputs=False), "1.6", "the step is sampled on the host")


STEADY_V1 = {"reload_inputs": False, "reload_sampling_params": False, "reset_sampling_state": False}
STEADY = [("V1", "reload_inputs", STEADY_V1), ("Legacy", "reset_batch", {"reset_batch": False})]


@pytest.mark.parametrize(("protocol", "name", "steady"), STEADY)
def test_the_first_decode_brings_its_inputs(load, tools, protocol, name, steady):
    driver = load(getattr(tools, protocol))
    driver.prefill([driver.admit(prompt(20), 0)])
    refused(driver, driver.decode_call(tools.params(4)) | steady, "1.6", f"{name} is False, but")


@pytest.mark.parametrize(("protocol", "name", "steady"), STEADY)
def test_a_decode_after_a_prefill_brings_its_inputs(start, tools, protocol, name, steady):
    driver = start(protocol)
    driver.prefill([driver.admit(prompt(5), 1)])
    refused(driver, driver.decode_call(tools.params(4)) | steady, "1.6", "a prefill came since the last decode")


@pytest.mark.parametrize(("protocol", "name", "steady"), STEADY)
def test_a_decode_after_a_host_sampled_one_brings_its_inputs(start, tools, protocol, name, steady):
    driver = start(protocol)
    driver.decode()
    refused(driver, driver.decode_call(tools.params(4)) | steady, "1.6", "last step was sampled on the host")


@pytest.mark.parametrize(("protocol", "name", "steady"), STEADY)
def test_a_row_that_left_is_a_new_layout(start, tools, protocol, name, steady):
    driver = start(protocol)
    driver.finish(driver.live[2])
    text = rf"{name} is False, but the layout changed: rows \[2\]"
    refused(driver, driver.decode_call(tools.params(4)) | steady, "1.6", text)


@pytest.mark.parametrize(("protocol", "name", "steady"), STEADY)
def test_positions_of_a_steady_step_are_the_device_s_or_one_behind(start, tools, protocol, name, steady):
    driver = start(protocol)
    call = driver.decode_call(tools.params(4)) | steady
    call["start_pos"][0] += 3
    refused(driver, call, "1.6", r"rows \[0\] are not where the device is")


def test_a_new_layout_resets_the_sampler_too(start, tools):
    driver = start()
    driver.finish(driver.live[2])
    call = driver.decode_call(tools.params(4), reload_sampling_params=False, reset_sampling_state=False)
    refused(driver, call, "1.6", "reload_sampling_params is False, but the layout changed")


def test_a_prefill_resets_the_sampler_too(start, tools):
    driver = start()
    driver.prefill([driver.admit(prompt(5), 1)])
    call = driver.decode_call(tools.params(4), reset_sampling_state=False)
    refused(driver, call, "1.6", "reset_sampling_state is False, but a prefill came")


def test_an_untraced_decode_has_nothing_resident(start, tools):
    driver = start()
    call = driver.decode_call(tools.params(4), enable_trace=False)
    refused(driver, call, "1.6", "decode is not traced")


def test_a_changed_page_table_needs_a_reload(start, tools):
    driver = start()
    call = driver.decode_call(tools.params(4))
    call["page_table"][0, 2] = driver.free[0][-1]
    text = r"page table of rows \[0\] changed, but neither reload_inputs nor reload_page_table"
    refused(driver, call, "1.6", text)


def test_changed_sampling_parameters_need_a_reload(start, tools):
    driver = start()
    call = driver.decode_call(tools.params(4, temperature=[0.0, 0.0, 0.5, 0.0], top_k=5))
    refused(driver, call, "1.6", r"sampling parameters of rows \[0, 2\] changed")


REMAPS = {
    "twice": ([0, 0, 2, 3], "is no permutation"),
    "out of range": ([0, 1, 2, 4], "is no permutation"),
    "short": ([0, 1, 2], r"slot_remap must have shape \[4\]"),
}


@pytest.mark.parametrize("breach", REMAPS)
def test_a_slot_remap_is_a_permutation_of_all_slots(start, tools, breach):
    driver = start()
    remap, text = REMAPS[breach]
    call = driver.decode_call(tools.params(4), slot_remap=torch.tensor(remap, dtype=torch.int32))
    refused(driver, call, "1.6", text)


def test_a_slot_remap_stays_within_lanes(start, tools):
    driver = start(lanes=2)
    call = driver.decode_call(tools.params(4), slot_remap=torch.tensor([2, 1, 0, 3], dtype=torch.int32))
    refused(driver, call, "1.6", "leaves a lane")


def test_a_slot_remap_is_a_new_layout(start, tools):
    driver = start()
    call = driver.decode_call(tools.params(4), slot_remap=torch.tensor([0, 3, 2, 1], dtype=torch.int32))
    refused(driver, call, "1.6", "reload_inputs is False, but slot_remap moved rows")


def test_a_decode_that_is_traced_needs_a_trace_region(load, tools):
    driver = load(trace=None)
    call = driver.prefill_call([driver.admit(prompt(4), 0)]) | {"enable_trace": False}
    driver.model.prefill_forward(**call)
    driver.live[0].tokens.append(1)
    refused(driver, driver.decode_call(), "3.2", "opened without a trace region")


PARAMETERS = {
    "dictionary": (lambda p: dataclasses.asdict(p), "must be a dataclass object, not dict"),
    "extra field": (lambda p: grown(p), "exactly the nine fields; wrong: min_p"),
    "tensor": (lambda p: dataclasses.replace(p, top_k=torch.ones(4)), "top_k must be a python list, not Tensor"),
    "numpy array": (lambda p: dataclasses.replace(p, top_p=np.ones(4)), "top_p must be a python list"),
    "scalar": (lambda p: dataclasses.replace(p, temperature=0.0), "temperature must be a python list, not float"),
    "numpy scalar": (lambda p: dataclasses.replace(p, top_p=[np.float64(1)] * 4), r"top_p\[0\] is"),
    "bool": (lambda p: dataclasses.replace(p, top_k=[True] * 4), r"top_k\[0\] is True"),
    "float seed": (lambda p: dataclasses.replace(p, seed=[1.5] * 4), r"seed\[0\] is 1.5"),
    "short list": (lambda p: dataclasses.replace(p, seed=[None] * 3), "seed has 3 entries for 4 rows"),
    "top_k too large": (
        lambda p: dataclasses.replace(p, temperature=[1.0] * 4, top_k=[33] * 4),
        r"row 0 samples with top_k 33 on a device that holds 1..32",
    ),
    "top_k unlimited": (lambda p: dataclasses.replace(p, temperature=[1.0] * 4, top_k=[0] * 4), "top_k 0"),
    "top logprobs": (lambda p: dataclasses.replace(p, num_logprobs=[5] * 4), "row 0 wants 5 logprobs"),
}


def grown(params):
    fields = [*dataclasses.asdict(params), "min_p"]
    return dataclasses.make_dataclass("Grown", fields)(**dataclasses.asdict(params), min_p=[0.0] * 4)


@pytest.mark.parametrize("breach", PARAMETERS)
def test_sampling_parameters_the_device_cannot_take_are_refused(start, tools, breach):
    driver = start()
    change, text = PARAMETERS[breach]
    call = driver.decode_call(tools.params(4))
    refused(driver, call | {"sampling_params": change(call["sampling_params"])}, "1.8", text)


def test_parameters_of_rows_that_sit_out_do_not_count(load, tools):
    """A request that waits for its next chunk keeps its parameters in its row."""
    driver = load()
    driver.prefill([driver.admit(prompt(20), 0)])
    driver.decode(tools.params(4, temperature=[0.0, 1.0, 0.0, 0.0], top_k=[1, 500, 1, 1]))


@pytest.mark.parametrize("missing", ["prompt_tokens", "output_tokens"])
def test_an_active_penalty_brings_both_histories(load, tools, missing):
    driver = load()
    driver.prefill([driver.admit(prompt(20), 0)])
    histories = {name: torch.full((4, 8), -1, dtype=torch.int32) for name in ("prompt_tokens", "output_tokens")}
    del histories[missing]
    call = driver.decode_call(tools.params(4, presence_penalty=0.5)) | histories
    refused(driver, call, "1.6", f"{missing} is missing")


def test_histories_hold_token_ids(load, tools):
    driver = load()
    driver.prefill([driver.admit(prompt(20), 0)])
    histories = {name: torch.full((4, 8), 160, dtype=torch.int32) for name in ("prompt_tokens", "output_tokens")}
    refused(driver, driver.decode_call(tools.params(4, presence_penalty=0.5)) | histories, "1.6", "token id 160")


def test_strict_mode_can_be_switched_off(load, tools, monkeypatch):
    monkeypatch.setenv("TT_HOST_STRICT", "0")
    driver = load()
    driver.prefill([driver.admit(prompt(20), 0)])
    call = driver.decode_call()
    call["tokens"][1] = 5
    driver.model.decode_forward(**call)


def test_a_wrong_value_of_the_switch_is_named(load, monkeypatch):
    monkeypatch.setenv("TT_HOST_STRICT", "yes")
    with pytest.raises(ValueError, match="TT_HOST_STRICT='yes' is unknown: allowed are 1"):
        load()
