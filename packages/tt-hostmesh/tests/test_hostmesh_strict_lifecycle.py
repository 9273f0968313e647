"""Strict mode: order of calls, read-back, warm-up and release."""

import threading

import pytest

from tt_hostmesh import ContractError, HostMeshError


def prompt(length):
    return [(7 * i + length) % 160 for i in range(length)]


@pytest.fixture
def running(load, tools):
    """A driver with one request, and one step submitted: (driver, payload)."""
    driver = load()
    driver.prefill([driver.admit(prompt(20), 0)], sampling=tools.params(1))
    call = driver.decode_call(tools.params(4), read_from_device=False)
    payload = driver.model.decode_forward(**call)
    driver.accepted(call)
    driver.live[0].tokens.append(0)
    return driver, payload


def refused(clause, text):
    return pytest.raises(ContractError, match=f"tt-metal contract {clause}: .*{text}")


def test_a_payload_is_read_before_the_next_decode(running, tools):
    driver, _ = running
    with refused("1.7", "was never read, and its buffers are reused"):
        driver.decode(tools.params(4))


def test_a_payload_is_read_before_the_next_prefill(running, tools):
    driver, _ = running
    with refused("1.7", "was never read"):
        driver.prefill([driver.admit(prompt(5), 1)])


def test_a_payload_is_read_once(running):
    driver, payload = running
    driver.model.read_decode_output(payload, async_read=True)
    with refused("1.7", "was read before"):
        driver.model.read_decode_output(payload, async_read=True)


def test_a_payload_that_decode_did_not_return_is_refused(running):
    driver, _ = running
    with refused("1.7", "tuple is not what decode_forward returned"):
        driver.model.read_decode_output((1, 2), async_read=True)


def test_a_result_is_processed_after_its_event(running):
    """The device is held up, so the copy cannot have happened."""
    driver, payload = running
    gate = threading.Event()
    driver.mesh.submit(gate.wait)
    host, events = driver.model.read_decode_output(payload, async_read=True)
    with refused("1.7", "event was not synchronised"):
        driver.model.process_decode_output_host(host, is_tokens=True)
    gate.set()
    driver.runtime.event_synchronize(events[0])
    tokens, logprobs = driver.model.process_decode_output_host(host, is_tokens=True)
    assert (tuple(tokens.shape), tuple(logprobs.shape)) == ((4,), (4,))


def test_a_result_is_processed_once(running):
    driver, payload = running
    host, events = driver.model.read_decode_output(payload, async_read=True)
    driver.runtime.event_synchronize(events[0])
    driver.model.process_decode_output_host(host, is_tokens=True)
    with refused("1.7", "was processed before"):
        driver.model.process_decode_output_host(host, is_tokens=True)


def test_is_tokens_says_what_the_step_returned(running):
    driver, payload = running
    host, events = driver.model.read_decode_output(payload, async_read=True)
    driver.runtime.event_synchronize(events[0])
    with refused("1.7", "is_tokens=False, but the step returned tokens"):
        driver.model.process_decode_output_host(host, is_tokens=False)


def test_something_else_is_not_processed(running):
    driver, _ = running
    with refused("1.7", "list is not what read_decode_output returned"):
        driver.model.process_decode_output_host([], is_tokens=True)


def test_a_device_payload_may_be_processed_without_a_read(running, tools):
    driver, payload = running
    tokens, _ = driver.model.process_decode_output_host(payload, is_tokens=True)
    driver.live[0].tokens[-1] = int(tokens[0])
    driver.decode(tools.params(4))


def test_steps_before_the_cache_exists_are_refused(load):
    driver = load()
    request = driver.admit(prompt(4), 0)
    call = driver.prefill_call([request])
    driver.model._checker._records = []
    with refused("1.1", "allocate_kv_cache was not called yet"):
        driver.model.prefill_forward(**call)


WARM_UPS = {
    "cache": ({"kv_cache": None}, "kv_cache is not the object"),
    "rows": ({"max_batch_size": 3}, "max_batch_size is 3, the model has 4"),
    "width": ({"num_blocks": 65}, "page tables of 65 columns, the pool has 64 blocks"),
}


@pytest.mark.parametrize("breach", WARM_UPS)
def test_a_wrong_warm_up_is_refused(load, breach):
    driver = load()
    call = {"kv_cache": driver.kv, "enable_trace": True, "max_batch_size": 4, "num_blocks": 16}
    change, text = WARM_UPS[breach]
    with refused("1.4", text):
        driver.model.warmup_model_decode(**{**call, **change}, can_sample_on_device=True)


def test_a_warm_up_makes_the_next_decode_the_first(running, tools):
    driver, payload = running
    driver.model.process_decode_output_host(payload, is_tokens=True)
    driver.model.warmup_model_decode(driver.kv, True, 4, driver.width, True)
    with refused("1.6", "reload_inputs is False, but it is the first decode"):
        driver.decode(tools.params(4))


@pytest.mark.parametrize("slot", [-1, 4, True, None])
def test_a_slot_that_does_not_exist_is_not_released(load, slot):
    with refused("1.9", "slots are 0..3"):
        load().model.release_request(slot)


def test_a_slot_is_released_once(running):
    driver, _ = running
    driver.model.release_request(0)
    with refused("1.9", "slot 0 has no request"):
        driver.model.release_request(0)


def test_a_released_request_does_not_decode(running, tools):
    driver, payload = running
    driver.model.read_decode_output(payload)
    driver.model.release_request(0)
    with refused("1.6", "no prefill ever filled slot 0"):
        driver.decode(tools.params(4))


def test_nothing_works_after_the_capture_is_released(running, tools):
    driver, payload = running
    driver.model.release_persistent_capture()
    for call in (
        lambda: driver.decode(tools.params(4)),
        lambda: driver.model.read_decode_output(payload),
        lambda: driver.prefill([driver.admit(prompt(5), 1)]),
        driver.warm_up,
        driver.model.release_persistent_capture,
    ):
        with pytest.raises(HostMeshError, match="after release_persistent_capture"):
            call()


def test_nothing_works_after_the_mesh_is_closed(running, tools):
    driver, payload = running
    driver.runtime.close_mesh_device(driver.mesh)
    with pytest.raises(HostMeshError, match=r"mesh \(1, 1\) is closed: LlamaForCausalLM.read_decode_output"):
        driver.model.read_decode_output(payload)
