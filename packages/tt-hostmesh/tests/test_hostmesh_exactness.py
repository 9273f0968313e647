"""Greedy tokens equal those of transformers in float32, whatever way a plugin takes through the contract."""

import random

import pytest
import torch


def prompt(length, seed=0):
    return [random.Random(f"{length}/{seed}").randrange(160) for _ in range(length)]


LENGTHS = (5, 16, 33, 90, 17, 1, 64, 48)


@pytest.mark.parametrize("device", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("protocol", ["V1", "Legacy"])
def test_rows_of_mixed_lengths_decode_like_transformers(load, reference, tools, protocol, device):
    driver = load(getattr(tools, protocol), batch=8)
    sampling = tools.params(8) if device else None
    requests = [driver.admit(prompt(n), row) for row, n in enumerate(LENGTHS)]
    driver.prefill(requests[:5], sampling=tools.params(5) if device else None)
    driver.prefill(requests[5:], sampling=tools.params(3) if device else None)
    for _ in range(20):
        driver.decode(sampling)
    for request, length in zip(requests, LENGTHS, strict=True):
        assert request.tokens[length:] == reference(prompt(length), 21)


@pytest.mark.parametrize("chunk", [16, 21, 50])
def test_a_prompt_computed_in_chunks_is_the_same_prompt(load, reference, chunk):
    """Fails when a chunk attends to less than the whole context before it, or writes at the wrong position."""
    driver = load()
    request = driver.admit(prompt(130), 2)
    for end in [*range(chunk, 130, chunk), 130]:
        driver.prefill([request], [end], final=end == 130)
    for _ in range(8):
        driver.decode()
    assert request.tokens[130:] == reference(prompt(130), 9)


def test_chunks_of_one_row_may_share_a_call_with_whole_prompts_of_others(load, reference):
    driver = load()
    long, short = driver.admit(prompt(100), 0), driver.admit(prompt(20), 3)
    driver.prefill([long], [40], final=False)
    driver.prefill([long, short])
    for _ in range(5):
        driver.decode()
    assert long.tokens[100:] == reference(prompt(100), 6)
    assert short.tokens[20:] == reference(prompt(20), 6)


def test_a_cached_prefix_is_read_from_the_blocks_of_the_request_that_wrote_it(load, reference, tools):
    driver = load()
    common = prompt(2 * tools.block)
    first = driver.admit(common + prompt(9, 1), 0)
    driver.prefill([first])
    second = driver.admit(common + prompt(30, 2), 1, blocks=first.blocks[:2], computed=2 * tools.block)
    driver.prefill([second])
    for _ in range(6):
        driver.decode()
    assert first.tokens[41:] == reference(common + prompt(9, 1), 7)
    assert second.tokens[62:] == reference(common + prompt(30, 2), 7)


def test_a_prefix_written_by_an_earlier_row_of_the_same_call_is_seen(load, reference, tools):
    """vLLM schedules two requests with one prefix in one step, the second with a hit on blocks just being written."""
    driver = load()
    common = prompt(tools.block)
    first, second = driver.admit([*common, 3], 0), driver.admit([*common, 4, 5], 1, computed=tools.block)
    driver.grow(first, tools.block)
    second.blocks = first.blocks[:1]
    driver.prefill([first, second])
    driver.decode()
    assert second.tokens[18:] == reference([*common, 4, 5], 2)


def test_rows_and_blocks_are_used_again(load, reference, tools):
    """Fails when anything of a finished request reaches its successor."""
    driver = load(batch=2, blocks=20)
    sampling = tools.params(2)
    steady = driver.admit(prompt(12), 0)
    driver.prefill([steady], sampling=tools.params(1))
    for turn in range(4):
        length = 70 - 15 * turn
        request = driver.admit(prompt(length, turn), 1)
        driver.prefill([request], sampling=tools.params(1))
        for _ in range(5):
            driver.decode(sampling)
        assert request.tokens[length:] == reference(prompt(length, turn), 6)
        driver.finish(request)
        driver.decode(sampling)
    assert steady.tokens[12:] == reference(prompt(12), len(steady.tokens) - 12)


@pytest.mark.parametrize("protocol", ["V1", "Legacy"])
@pytest.mark.parametrize("lanes", [2, 4])
def test_lanes_have_caches_of_their_own(load, reference, tools, lanes, protocol):
    """Every lane hands out the same block numbers. Fails when a row reads another lane's cache."""
    driver = load(getattr(tools, protocol), lanes=lanes, batch=8)
    rows = [0, 3, 4, 7]
    requests = [driver.admit(prompt(20 + row), row) for row in rows]
    driver.prefill(requests, sampling=tools.params(4))
    for _ in range(6):
        driver.decode(tools.params(8))
    for request in requests:
        length = 20 + request.row
        assert request.tokens[length:] == reference(prompt(length), 7)


@pytest.mark.parametrize("protocol", ["V1", "Legacy"])
def test_steps_submitted_ahead_of_their_tokens_are_exact(load, reference, tools, protocol):
    """The host learns a token two steps late; token and position stay on the device, new blocks are sent along."""
    driver = load(getattr(tools, protocol), batch=2)
    requests = [driver.admit(prompt(13), 0), driver.admit(prompt(30), 1)]
    driver.prefill(requests, sampling=tools.params(2))
    flying = []
    for _ in range(30):
        call = driver.decode_call(tools.params(2), read_from_device=False)
        payload = driver.model.decode_forward(**call)
        flying.append(driver.model.read_decode_output(payload, async_read=True))
        driver.accepted(call)
        if len(flying) == 2:
            take(driver, flying.pop(0), requests)
        else:
            for request in requests:
                request.tokens.append(0)  # placeholder: the step's token is not known yet
    take(driver, flying.pop(0), requests)
    for request, length in zip(requests, (13, 30), strict=True):
        assert [t for t in request.tokens[length:] if t >= 0][:25] == reference(prompt(length), 25)


def take(driver, flight, requests):
    """Apply a step that was read: its token replaces the oldest placeholder, a new placeholder goes behind."""
    host, events = flight
    for event in events:
        driver.runtime.event_synchronize(event)
    tokens, _ = driver.model.process_decode_output_host(host, is_tokens=True)
    for request in requests:
        request.tokens[-1] = int(tokens[request.row])
        request.tokens.append(0)


def test_slot_remap_moves_the_resident_state_to_another_row(load, reference, tools):
    driver = load()
    first, second = driver.admit(prompt(18), 0), driver.admit(prompt(25), 1)
    driver.prefill([first, second], sampling=tools.params(2))
    for _ in range(3):
        driver.decode(tools.params(4))
    driver.live = {2: first, 0: second}
    first.row, second.row = 2, 0
    driver.fresh = True
    driver.decode(tools.params(4), slot_remap=torch.tensor([1, 2, 0, 3], dtype=torch.int32))
    driver.decode(tools.params(4))
    assert first.tokens[18:] == reference(prompt(18), 6)
    assert second.tokens[25:] == reference(prompt(25), 6)


VARIANTS = {
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "no grouping": {"num_key_value_heads": 6},
    "one key head": {"num_key_value_heads": 1},
    "wide head": {"head_dim": 12},
    "gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "sharded": {"shards": 3},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
    "llama3 rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_the_architecture_decode_like_transformers(load, tools, tmp_path, variant):
    config = tools.save_checkpoint(tmp_path, **VARIANTS[variant])
    reference = tools.greedy_reference(config)
    driver = load(config=config)
    requests = [driver.admit(prompt(11), 0), driver.admit(prompt(75), 1)]
    driver.prefill(requests)
    for _ in range(10):
        driver.decode()
    assert requests[0].tokens[11:] == reference(prompt(11), 11)
    assert requests[1].tokens[75:] == reference(prompt(75), 11)


def test_the_configuration_of_transformers_itself_is_understood(load, tiny, reference):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(tiny._name_or_path)
    driver = load(config=config)
    request = driver.admit(prompt(20), 0)
    driver.prefill([request])
    driver.decode()
    assert request.tokens[20:] == reference(prompt(20), 2)
