"""What reaches the device under each decode protocol. Strict mode is off: stale inputs must do no harm."""

import pytest
import torch

from tt_hostmesh.adapter.decode import DecodeCall
from tt_hostmesh.adapter.protocol import DecodeProtocol, stage
from tt_hostmesh.adapter.resident import Resident
from tt_hostmesh.sampling import SamplingColumns, SamplingTable


@pytest.fixture(autouse=True)
def lenient(monkeypatch):
    monkeypatch.setenv("TT_HOST_STRICT", "0")


def prompt(length, seed=0):
    return [(7 * i + length + seed) % 160 for i in range(length)]


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def call_of(tokens, start_pos, tools, *, sampled=True, rows=3, **changes):
    sampling = SamplingColumns.of(tools.params(rows), rows) if sampled else None
    table = torch.arange(rows * 2).view(rows, 2) + 100
    return DecodeCall(ints(*tokens), ints(*start_pos), table, True, sampled, sampling, **changes)


@pytest.fixture
def resident():
    """Three rows: at 5 with token 50, at 6 with token 60, nobody."""
    state = Resident(3)
    state.load(ints(50, 60, 0), ints(5, 6, -1), torch.arange(6).view(3, 2))
    return state


def test_v1_looks_at_nothing_without_a_command(load, tools):
    """Fails when tokens, start_pos, page_table or sampling_params of a steady step reach the device."""
    texts = []
    for rubbish in (False, True):
        driver = load(batch=2)
        requests = [driver.admit(prompt(9), 0), driver.admit(prompt(30), 1)]
        driver.prefill(requests, sampling=tools.params(2))
        driver.decode(tools.params(2))
        for _ in range(5):
            call = driver.decode_call(tools.params(2))
            if rubbish:
                call["tokens"][:] = 99999
                call["start_pos"][:] = 7
                if not call["reload_page_table"]:
                    call["page_table"][:] = 3
                call["sampling_params"] = tools.params(2, temperature=9.0, top_k=30)
            out = driver.model.decode_forward(**call)
            driver.accepted(driver.decode_call(tools.params(2)))
            driver.append(out, True)
        texts.append([request.tokens for request in requests])
        driver.runtime.close_mesh_device(driver.mesh)
    assert texts[0] == texts[1]


def test_v1_takes_what_is_commanded(resident, tools):
    call = call_of((1, 2, 3), (10, 11, 12), tools, reload_page_table=True)
    stage(DecodeProtocol.V1, resident, call, 160)
    assert resident.tokens.tolist() == [50, 60, 0]
    assert resident.positions.tolist() == [5, 6, -1]
    assert torch.equal(resident.page_table, call.page_table)
    call = call_of((1, 2, 3), (10, 11, 12), tools, reload_inputs=True, reload_sampling_params=True)
    stage(DecodeProtocol.V1, resident, call, 160)
    assert resident.tokens.tolist() == [1, 2, 3]
    assert resident.positions.tolist() == [10, 11, 12]
    assert torch.equal(resident.sampling.top_k, call.sampling.table().top_k)


def test_legacy_reset_keeps_a_device_that_is_level_or_one_ahead(resident, tools):
    """Fails when a stale token of the host replaces the one the device sampled."""
    stage(DecodeProtocol.LEGACY, resident, call_of((1, 2, 3), (5, 5, 8), tools, reset_batch=True), 160)
    assert resident.tokens.tolist() == [50, 60, 3]
    assert resident.positions.tolist() == [5, 6, 8]
    stage(DecodeProtocol.LEGACY, resident, call_of((1, 2, 3), (3, 7, -1), tools, reset_batch=True), 160)
    assert resident.tokens.tolist() == [1, 2, 3]
    assert resident.positions.tolist() == [3, 7, -1]


def test_legacy_without_reset_takes_the_page_table_and_the_sampling_only(resident, tools):
    call = call_of((1, 2, 3), (5, 6, -1), tools)
    stage(DecodeProtocol.LEGACY, resident, call, 160)
    assert resident.tokens.tolist() == [50, 60, 0]
    assert torch.equal(resident.page_table, call.page_table)
    assert torch.equal(resident.sampling.top_k, call.sampling.table().top_k)


@pytest.mark.parametrize("how", ["host", "untraced", "after host"])
def test_legacy_loads_everything_where_nothing_is_resident(resident, tools, how):
    call = call_of((1, 2, 3), (5, 6, -1), tools, sampled=how != "host")
    if how == "untraced":
        call = DecodeCall(call.tokens, call.start_pos, call.page_table, False, True, call.sampling)
    if how == "after host":
        resident.advance(ints(0, 1), None)
    stage(DecodeProtocol.LEGACY, resident, call, 160)
    assert resident.tokens.tolist() == [1, 2, 3]
    assert resident.positions.tolist() == [5, 6, -1]


def test_a_prefill_takes_its_slots_from_the_resident_rows(load, reference, tools):
    """The new request of row 0 stands where the old one stood: a legacy reset must not find the old one's token."""
    driver = load(tools.Legacy, batch=2)
    old, other = driver.admit(prompt(20), 0), driver.admit(prompt(30), 1)
    driver.prefill([old, other], sampling=tools.params(2))
    driver.decode(tools.params(2))
    driver.finish(old)
    new = driver.admit(prompt(21, 3), 0)
    driver.prefill([new], sampling=tools.params(1))
    driver.decode(tools.params(2))
    assert new.tokens[21:] == reference(prompt(21, 3), 2)


@pytest.mark.parametrize("protocol", list(DecodeProtocol))
def test_a_remap_moves_everything_that_is_resident(resident, tools, protocol):
    resident.sampling = SamplingTable.of(tools.params(3, seed=[7, 8, 9]), 3)
    call = call_of((0, 0, 0), (5, 6, -1), tools, slot_remap=ints(2, 0, 1), rows=3)
    stage(DecodeProtocol.V1, resident, call, 160)
    assert resident.tokens.tolist() == [0, 50, 60]
    assert resident.positions.tolist() == [-1, 5, 6]
    assert resident.page_table[:, 0].tolist() == [4, 0, 2]
    assert resident.sampling.seed.tolist() == [9, 7, 8]


@pytest.mark.parametrize("protocol", ["V1", "Legacy"])
def test_penalties_count_what_the_device_samples(load, tools, protocol):
    """Histories come with the reset; after it the device counts on by itself, as if they came each time."""
    texts = []
    strong = tools.params(2, presence_penalty=[30.0, 0.0], repetition_penalty=[1.0, 1.5])
    for every_step in (True, False):
        driver = load(getattr(tools, protocol), batch=2)
        requests = [driver.admit(prompt(9), 0), driver.admit(prompt(30), 1)]
        driver.prefill(requests)
        for _ in range(12):
            driver.fresh = driver.fresh or every_step
            prompts = pad([requests[0].tokens[:9], requests[1].tokens[:30]])
            outputs = pad([requests[0].tokens[9:], requests[1].tokens[30:]])
            driver.decode(strong, prompt_tokens=prompts, output_tokens=outputs)
        texts.append([request.tokens for request in requests])
        driver.runtime.close_mesh_device(driver.mesh)
    assert texts[0] == texts[1]
    generated = texts[0][0][9:]
    assert len(set(generated)) == len(generated)


def pad(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(r, dtype=torch.int32) for r in rows], True, -1)


def test_an_active_penalty_without_histories_is_an_error_in_any_mode(load, tools):
    driver = load()
    driver.prefill([driver.admit(prompt(9), 0)])
    with pytest.raises(ValueError, match="has no prompt_tokens"):
        driver.decode(tools.params(4, presence_penalty=1.0))


@pytest.mark.parametrize(("name", "contract"), [("v1", 1), ("legacy", None)])
def test_the_protocol_is_chosen_by_variable(load, tools, monkeypatch, name, contract):
    monkeypatch.setenv("TT_HOST_PROTOCOL", name)
    assert getattr(load().model, "decode_input_update_contract", None) == contract
    assert not hasattr(tools.V1, "decode_input_update_contract")


def test_a_class_may_fix_its_protocol(load, tools, monkeypatch):
    monkeypatch.setenv("TT_HOST_PROTOCOL", "v1")
    assert not hasattr(load(tools.Legacy).model, "decode_input_update_contract")


def test_an_unknown_protocol_is_named(load, monkeypatch):
    monkeypatch.setenv("TT_HOST_PROTOCOL", "v2")
    with pytest.raises(ValueError, match="TT_HOST_PROTOCOL='v2' is unknown: allowed are v1, legacy"):
        load()
