"""Every face of the two models: what it takes, what it answers, and that its tokens are those of the model."""

import inspect
from types import SimpleNamespace

import pytest
import torch

from tt_hostmesh import HostRuntime
from tt_hostmesh.adapter.presentations import FACES, present
from tt_hostmesh.adapter.readback import DevicePayload
from tt_hostmesh.llama.generator import LlamaForCausalLM
from tt_hostmesh.synthetic.checkpoint import configuration
from tt_hostmesh.synthetic.cost import DeviceCost
from tt_hostmesh.synthetic.digest import continuation
from tt_hostmesh.synthetic.generator import SyntheticForCausalLM

VOCABULARY = 1000
CONFIG = SimpleNamespace(**configuration(VOCABULARY, 256, DeviceCost(decode_ms=0, prefill_ms_per_token=0)))
PROMPT = [(11 * i) % 160 for i in range(40)]


@pytest.fixture
def synthetic(load):
    """synthetic(face, ...) -> Driver over the synthetic model with that face."""
    return lambda face, **more: load(present(SyntheticForCausalLM, face), config=CONFIG, **more)


def run(driver, tools, steps=6):
    """Two requests, prefilled one by one, sampled on the device and on the host; the first one."""
    first = driver.admit(PROMPT, 0)
    driver.prefill([first], sampling=tools.params(1))
    driver.prefill([driver.admit(PROMPT[:9], 1)])
    for step in range(steps):
        driver.decode(tools.params(4) if step % 3 else None)
    return first


@pytest.mark.parametrize("face", FACES)
def test_a_face_changes_no_token_of_the_synthetic_model(synthetic, tools, face):
    first = run(synthetic(face), tools)
    assert first.tokens[40:] == continuation(PROMPT, 7, VOCABULARY)


@pytest.mark.parametrize("face", FACES)
def test_a_face_changes_no_token_of_the_llama_model(load, reference, tools, face):
    first = run(load(present(LlamaForCausalLM, face)), tools)
    assert first.tokens[40:] == reference(PROMPT, 7)


@pytest.mark.parametrize("face", FACES)
def test_the_protocol_is_that_of_the_name(synthetic, monkeypatch, face):
    monkeypatch.setenv("TT_HOST_PROTOCOL", "legacy" if "v1" in face else "v1")
    model = synthetic(face).model
    assert getattr(model, "decode_input_update_contract", 0) == ("v1" in face)


@pytest.mark.parametrize("face", [face for face in FACES if "closed" in face])
def test_a_closed_face_takes_no_other_keyword(face):
    model = present(LlamaForCausalLM, face)
    for name in ("prefill_forward", "decode_forward"):
        parameters = inspect.signature(getattr(model, name)).parameters.values()
        assert all(p.kind is not p.VAR_KEYWORD for p in parameters)
    names = inspect.signature(model.decode_forward).parameters
    assert ("reset_batch" in names) == ("legacy" in face)
    assert ("reload_inputs" in names) == ("v1" in face)


@pytest.mark.parametrize("face", FACES)
def test_read_back_hooks_are_there_or_not(synthetic, tools, face):
    driver = synthetic(face)
    driver.prefill([driver.admit(PROMPT, 0)])
    out = driver.model.decode_forward(**driver.decode_call(tools.params(4), read_from_device=False))
    hooks = hasattr(driver.model, "read_decode_output"), hasattr(driver.model, "process_decode_output_host")
    if "host-results" in face:
        assert hooks == (False, False)
        assert isinstance(out[0], torch.Tensor)
    else:
        assert hooks == (True, True)
        assert isinstance(out, DevicePayload)
        driver.model.read_decode_output(out, async_read=True)


def test_an_unknown_face_is_named():
    with pytest.raises(ValueError, match=r"the face 'v2' is unknown: allowed are v1, legacy, "):
        present(LlamaForCausalLM, "v2")


@pytest.mark.parametrize(("batch", "lanes"), [(12, 1), (64, 1), (12, 4), (3, 1)])
def test_june_takes_powers_of_two_up_to_32_rows_a_submesh(synthetic, batch, lanes):
    with pytest.raises(ValueError, match=f"max_batch_size={batch} on {lanes} submeshes: one of "):
        synthetic("june", batch=batch, lanes=lanes)


def test_june_refuses_an_unaligned_first_position_in_an_untraced_prefill_only(synthetic, tools):
    driver = synthetic("june")
    request = driver.admit(PROMPT, 0)
    driver.prefill([request], ends=[20], final=False)
    call = driver.prefill_call([request])
    with pytest.raises(RuntimeError, match=r"start_pos \[20\] is not aligned to 32 tokens"):
        driver.model.prefill_forward(**{**call, "enable_trace": False})
    driver.model.prefill_forward(**call)


def test_june_writes_rows_of_equal_padded_length_by_slot(synthetic):
    driver = synthetic("june")
    one, three = driver.admit(PROMPT, 1), driver.admit(PROMPT[:9], 3)
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 2"):
        driver.prefill([one, three])
    driver.prefill([three])
    zero = driver.admit(PROMPT[:5], 0)
    driver.prefill([zero, one])


def test_june_answers_in_its_own_shapes(synthetic, tools):
    """Tokens uint32, ones for logprobs that nobody asked for, beside logits as many ones."""
    driver = synthetic("june")
    request = driver.admit(PROMPT, 0)
    tokens, ones = driver.prefill([request], sampling=tools.params(1))
    assert (tokens.dtype, tokens.shape, ones.tolist()) == (torch.int64, (1, 1), [1.0])
    tokens, ones = driver.decode(tools.params(4))
    assert (tokens.dtype, tokens.shape, ones.dtype, ones.shape) == (torch.uint32, (4,), torch.float32, (4,))
    logits, ones = driver.decode()
    assert logits.shape == ones.shape == (4, 1, VOCABULARY)
    assert ones.eq(1).all()


def test_june_answers_logprobs_in_bfloat16_on_eight_chips(machine):
    machine.environ = {"TT_HOST_CLUSTER": "T3K"}
    runtime = HostRuntime(machine)
    runtime.set_fabric_config(config="FABRIC_1D")
    mesh = runtime.open_mesh_device((1, 8))
    model = present(SyntheticForCausalLM, "june").initialize_vllm_model(CONFIG, mesh, 4, max_seq_len=64)
    tokens, logprobs = model._june((torch.zeros(4, dtype=torch.int32), torch.ones(4)))
    assert (tokens.dtype, logprobs.dtype) == (torch.uint32, torch.bfloat16)
    runtime.close_mesh_device(mesh)


def test_june_has_none_of_the_newer_hooks_and_abilities(synthetic):
    model = synthetic("june").model
    assert not hasattr(model, "release_request")
    assert not hasattr(model, "release_persistent_capture")
    assert set(model.model_capabilities) == {
        "supports_prefix_caching",
        "supports_async_decode",
        "supports_sample_on_device",
    }
