"""The model class as the plugin meets it: declarations, loading, memory, warm-up, results."""

import inspect
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from tt_hostmesh import HostMeshError
from tt_hostmesh.llama.generator import LegacyLlamaForCausalLM, LlamaForCausalLM


def prompt(length, seed=0):
    return [(7 * i + length + seed) % 160 for i in range(length)]


CALLS = {
    "initialize_vllm_model": ((1, 2, 3), "max_seq_len tt_data_parallel optimizations"),
    "get_max_tokens_all_users": ((), "model_name num_devices tt_data_parallel max_model_len max_num_seqs"),
    "allocate_kv_cache": ((0, 1, 2, 3), ""),
    "warmup_model_prefill": ((0,), "kv_cache enable_trace can_sample_on_device"),
    "warmup_model_decode": ((0,), "kv_cache enable_trace max_batch_size num_blocks can_sample_on_device"),
    "prefill_forward": (
        (0,),
        "tokens page_table kv_cache enable_trace prompt_lens start_pos empty_slots sampling_params",
    ),
    "decode_forward": (
        (0,),
        "tokens start_pos page_table kv_cache enable_trace read_from_device sampling_params prompt_tokens "
        "output_tokens slot_remap reload_inputs reload_page_table reload_sampling_params reset_sampling_state",
    ),
    "read_decode_output": ((0, 1), "async_read"),
    "process_decode_output_host": ((0, 1), "is_tokens"),
    "release_request": ((0, 1), ""),
    "release_persistent_capture": ((0,), ""),
}


@pytest.mark.parametrize("method", CALLS)
def test_every_call_of_the_contract_binds(method):
    positional, keywords = CALLS[method]
    inspect.signature(getattr(LlamaForCausalLM, method)).bind(*positional, **dict.fromkeys(keywords.split()))


CLOSED = [("initialize_vllm_model", "vllm_config"), ("warmup_model_decode", "can_sample_device_grammar")]


@pytest.mark.parametrize(("method", "keyword"), CLOSED)
def test_closed_signatures_stay_closed(method, keyword):
    parameters = inspect.signature(getattr(LlamaForCausalLM, method)).parameters.values()
    assert keyword not in {p.name for p in parameters}
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters)


def test_capabilities_are_declared_on_the_class():
    assert LlamaForCausalLM.model_capabilities == LegacyLlamaForCausalLM.model_capabilities
    assert LlamaForCausalLM.model_capabilities == {
        "supports_prefix_caching": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_chunked_prefill": True,
        "max_device_top_k": 32,
    }


ASKED = {"model_name": "m", "num_devices": 1, "tt_data_parallel": 1, "max_model_len": 512, "max_num_seqs": 8}


def test_the_kv_budget_is_131072_tokens_or_the_variable_s(monkeypatch):
    assert LlamaForCausalLM.get_max_tokens_all_users(**ASKED) == 131072
    monkeypatch.setenv("TT_HOST_MAX_TOKENS_ALL_USERS", "4096")
    assert LlamaForCausalLM.get_max_tokens_all_users(**ASKED) == 4096


@pytest.mark.parametrize("value", ["0", "-5", "many", "1.5"])
def test_a_wrong_kv_budget_is_named(monkeypatch, value):
    monkeypatch.setenv("TT_HOST_MAX_TOKENS_ALL_USERS", value)
    with pytest.raises(ValueError, match=f"TT_HOST_MAX_TOKENS_ALL_USERS='{value}' is not a number of tokens above 0"):
        LlamaForCausalLM.get_max_tokens_all_users(**ASKED)


def test_the_device_s_threads_are_set_in_its_own_thread(load, monkeypatch):
    monkeypatch.setenv("TT_HOST_THREADS", "1")
    mine = torch.get_num_threads()
    driver = load()
    assert driver.mesh.submit(torch.get_num_threads).result() == 1
    driver.mesh.submit(lambda: torch.set_num_threads(mine)).wait()
    for value in ("0", "two"):
        monkeypatch.setenv("TT_HOST_THREADS", value)
        with pytest.raises(ValueError, match=f"TT_HOST_THREADS='{value}' is not a number of threads above 0"):
            LlamaForCausalLM.initialize_vllm_model(driver.config, driver.mesh, 1, max_seq_len=64)


LOADING = {
    "optimizations": ({"optimizations": "fast"}, {}, ValueError, "optimizations='fast' is unknown"),
    "lanes do not divide rows": ({"tt_data_parallel": 3}, {}, ValueError, "tt_data_parallel=3 lanes"),
    "no rows": ({"max_batch_size": 0}, {}, ValueError, "max_batch_size=0"),
    "lanes do not fit devices": ({"tt_data_parallel": 4}, {}, ValueError, "do not fit a mesh of 1 x 1 devices"),
    "no directory": ({}, {"_name_or_path": "/nowhere"}, FileNotFoundError, "/nowhere holds neither"),
    "other shape": ({}, {"vocab_size": 161}, ValueError, r"has shape \(160, 48\), the configuration says \(161, 48\)"),
    "missing tensor": ({}, {"num_hidden_layers": 4}, KeyError, "has no tensor 'model.layers.3"),
    "rope": ({}, {"rope_parameters": {"rope_type": "yarn"}}, ValueError, "rope_type='yarn' is not supported"),
    "part": (
        {},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        ValueError,
        "partial_rotary_factor=0.5",
    ),
    "activation": ({}, {"hidden_act": "relu6"}, ValueError, "hidden_act='relu6' is not supported"),
}


@pytest.mark.parametrize("fault", LOADING)
def test_what_cannot_be_loaded_is_named(load, tiny, fault):
    call, config, error, text = LOADING[fault]
    mesh = load().mesh
    arguments = {"max_batch_size": 4, "max_seq_len": 64, **call}
    with pytest.raises(error, match=text):
        LlamaForCausalLM.initialize_vllm_model(SimpleNamespace(**{**vars(tiny), **config}), mesh, **arguments)


def test_a_foreign_mesh_is_refused(tiny):
    with pytest.raises(HostMeshError, match="runs on the software mesh only, got object"):
        LlamaForCausalLM.initialize_vllm_model(tiny, object(), 1, max_seq_len=64)


def test_rope_parameters_of_transformers_4_are_understood(load, tiny, reference):
    config = vars(tiny).copy()
    del config["rope_parameters"]
    driver = load(config=SimpleNamespace(**config, rope_theta=10000.0, rope_scaling=None))
    request = driver.admit(prompt(9), 0)
    driver.prefill([request])
    assert request.tokens[9:] == reference(prompt(9), 1)


def test_cache_shapes_are_per_device(load, tiny):
    """Two key heads on two devices a lane make one a device; the host keeps them together."""
    driver = load(lanes=2, batch=4)
    assert driver.model.allocate_kv_cache((8, 2, 16, 8), torch.bfloat16, 3) is not driver.kv
    with pytest.raises(ValueError, match="has 1 heads: 2 heads on 1 devices a lane make 2 a device"):
        driver.model.allocate_kv_cache((8, 1, 16, 8), torch.float32, 3)
    assert len(driver.kv) == 2


def test_warm_up_overwrites_block_0_and_nothing_else(load, tools):
    driver = load()
    request = driver.admit(prompt(20), 0)
    driver.prefill([request])
    storage = driver.kv[0][1]._storage
    before = storage.clone()
    driver.warm_up()
    assert torch.equal(storage[:, 16:], before[:, 16:])
    assert not torch.equal(storage[:, :16], before[:, :16])


def test_the_first_prefill_warms_up_by_itself_unless_it_was_done(load):
    driver = load()
    model = driver.model
    assert model.already_warmed_up_prefill is False
    driver.prefill([driver.admit(prompt(4), 0)])
    assert model.already_warmed_up_prefill is True
    executed = driver.mesh.executed
    driver.prefill([driver.admit(prompt(4), 1)])
    assert driver.mesh.executed == executed + 1
    model.already_warmed_up_prefill = False
    driver.prefill([driver.admit(prompt(4), 2)])
    assert driver.mesh.executed == executed + 3


def described(value):
    return (tuple(value.shape), value.dtype)


def test_results_have_the_shapes_and_types_of_the_contract(load, tools):
    driver = load()
    rows = [driver.admit(prompt(9), 0), driver.admit(prompt(5), 2)]
    tokens, logprobs = driver.prefill(rows, sampling=tools.params(2))
    assert described(tokens) == ((2, 1), torch.int64)
    assert described(logprobs) == ((2,), torch.float32)
    assert logprobs.tolist() == [1.0, 1.0]
    tokens, logprobs = driver.decode(tools.params(4))
    assert described(tokens) == ((4,), torch.int32)
    assert described(logprobs) == ((4,), torch.float32)
    logits, nothing = driver.decode()
    assert described(logits) == ((4, 1, 160), torch.float32)
    assert nothing is None
    assert logits[1].abs().sum() == logits[3].abs().sum() == 0
    assert described(driver.prefill([driver.admit(prompt(7), 1)])) == ((1, 1, 160), torch.float32)


def test_logits_may_be_changed_by_the_caller(load):
    """Fails when a result is an inference tensor, or a piece of the model's memory."""
    driver = load()
    driver.prefill([driver.admit(prompt(9), 0)])
    logits, _ = driver.decode()
    logits[0, 0].fill_(float("-inf"))
    logits, _ = driver.decode()
    assert logits[0].isfinite().all()


def test_a_step_without_live_rows_gives_padding(load, tools):
    driver = load()
    driver.prefill([driver.admit(prompt(9), 0)])
    driver.finish(driver.live[0])
    tokens, logprobs = driver.decode(tools.params(4))
    assert tokens.tolist() == [0] * 4
    assert logprobs.tolist() == [1.0] * 4
    logits, _ = driver.decode()
    assert described(logits) == ((4, 1, 160), torch.float32)


def test_logprobs_come_with_the_first_token_and_the_next(load, tools):
    driver = load()
    request = driver.admit(prompt(9), 0)
    asked = {"num_logprobs": 0, "enable_log_probs": True}
    _, first = driver.prefill([request], sampling=tools.params(1, **asked))
    _, then = driver.decode(tools.params(4, **asked))
    assert first[0] < 0
    assert then[0] < 0


def test_decode_returns_while_the_device_still_works(load, tools):
    """Fails when decode_forward(read_from_device=False) or an asynchronous read waits for the device."""
    driver = load()
    driver.prefill([driver.admit(prompt(9), 0)], sampling=tools.params(1))
    gate = threading.Event()
    driver.mesh.submit(gate.wait)
    call = driver.decode_call(tools.params(4), read_from_device=False)
    host, events = driver.model.read_decode_output(driver.model.decode_forward(**call), async_read=True)
    assert [event.done() for event in events] == [False]
    gate.set()
    driver.runtime.event_synchronize(events[0])
    assert 0 <= int(driver.model.process_decode_output_host(host, is_tokens=True)[0][0]) < 160


def test_a_read_has_one_event_a_lane(load, tools):
    driver = load(lanes=4, batch=4)
    driver.prefill([driver.admit(prompt(9), 0)], sampling=tools.params(1))
    call = driver.decode_call(tools.params(4), read_from_device=False)
    _, events = driver.model.read_decode_output(driver.model.decode_forward(**call), async_read=True)
    assert [event.owner for event in events] == driver.mesh.get_submeshes()


def test_an_error_on_the_device_surfaces_at_the_event_of_the_read(load, tools, monkeypatch):
    driver = load()
    driver.prefill([driver.admit(prompt(9), 0)], sampling=tools.params(1))
    monkeypatch.setattr(driver.model._device.compute, "decode", lambda *_: 1 / 0)
    payload = driver.model.decode_forward(**driver.decode_call(tools.params(4), read_from_device=False))
    host, events = driver.model.read_decode_output(payload, async_read=True)
    with pytest.raises(ZeroDivisionError):
        driver.runtime.event_synchronize(events[0])
    with pytest.raises(ZeroDivisionError):
        driver.model.process_decode_output_host(host, is_tokens=True)


def test_inputs_are_copied_when_the_call_is_made(load, reference, tools):
    """The plugin uses its buffers again at once. Fails when the device reads them later."""
    driver = load()
    request = driver.admit(prompt(9), 0)
    driver.prefill([request], sampling=tools.params(1))
    gate = threading.Event()
    driver.mesh.submit(gate.wait)
    call = driver.decode_call(tools.params(4), read_from_device=False)
    payload = driver.model.decode_forward(**call)
    for name in ("tokens", "start_pos", "page_table"):
        call[name].fill_(1)
    call["sampling_params"].temperature[0] = 50.0
    gate.set()
    tokens, _ = driver.model.process_decode_output_host(payload, is_tokens=True)
    assert [request.tokens[9], int(tokens[0])] == reference(prompt(9), 2)


BLOCKED = """
import sys
for name in ("torch", "vllm", "ttnn", "numpy", "transformers", "safetensors"):
    sys.modules[name] = None
import tt_hostmesh
runtime = tt_hostmesh.HostRuntime()
mesh = runtime.open_mesh_device((1, 1))
print(mesh.submit(lambda: 3).result())
runtime.close_mesh_device(mesh)
"""


def test_the_runtime_needs_neither_torch_nor_vllm():
    run = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("3\n", "")


def test_the_model_does_not_import_vllm():
    code = "import sys, tt_hostmesh.llama.generator; print({'vllm', 'ttnn'} & {m.split('.')[0] for m in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout == "set()\n"


def test_entry_points_name_the_runtime_and_the_model():
    from importlib.metadata import entry_points

    from tt_hostmesh import HostRuntime

    (runtime,) = entry_points(group="tt_platform.runtimes", name="host")
    assert runtime.load() is HostRuntime
    (model,) = entry_points(group="tt_registry.host_models", name="LlamaForCausalLM")
    assert model.load() is LlamaForCausalLM


def test_vllm_s_own_loader_is_told_to_keep_off():
    with pytest.raises(NotImplementedError, match="is built by initialize_vllm_model only"):
        LlamaForCausalLM(vllm_config=object(), prefix="model")
    with pytest.raises(NotImplementedError, match="driven by the TT worker"):
        LlamaForCausalLM.forward(None, None, None)


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_takes_the_class_for_a_text_generation_model():
    registry = pytest.importorskip("vllm.model_executor.models.registry")
    for cls in (LlamaForCausalLM, LegacyLlamaForCausalLM):
        info = registry._ModelInfo.from_model_cls(cls)
        assert info.is_text_generation_model
        assert not info.is_pooling_model
        assert not info.supports_multimodal
