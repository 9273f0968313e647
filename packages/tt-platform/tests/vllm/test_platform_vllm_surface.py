"""What vLLM asks of the platform, and what the platform does to an environment that is not its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def platform():
    from vllm.platforms import current_platform

    return current_platform


def test_the_platform_is_ours(platform):
    assert type(platform).__name__ == "TTPlatform"
    assert platform.is_out_of_tree()
    assert (platform.device_type, platform.device_name) == ("tt", "tt")
    assert platform.device_control_env_var == "TT_VISIBLE_DEVICES"
    assert platform.simple_compile_backend == "eager"
    assert platform.uses_host_device_handling()
    assert platform.support_hybrid_kv_cache()
    assert not platform.is_pin_memory_available()


def test_calls_that_a_thread_of_the_executor_makes_do_not_raise(platform):
    import torch

    platform.set_device(None)
    platform.import_kernels()
    platform.check_runner_kv_caches_multi_layer()
    platform.update_block_size_for_backend(None)
    with platform.inference_mode():
        assert not torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    assert platform.device_id_to_physical_device_id(3) == 3


def test_the_last_step_of_vllms_shutdown_finds_no_accelerator_to_empty(platform):
    """Fails when is_cpu() stays False: vLLM then empties the cache of an accelerator that torch does not have."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    from tt_platform.presence import GIVEN_BACK

    assert not platform.is_cpu()
    GIVEN_BACK.set()
    try:
        assert platform.is_cpu()
        cleanup_dist_env_and_memory()
    finally:
        platform.pre_register_and_update()
    assert not platform.is_cpu()


# Reached only on other hardware, by features that the rules refuse, or inside vLLM's own GPU code.
FOREIGN = re.compile(
    r"graph|stream|cuda|Stream|Event|memory|capability|compute_units|xpu|rocm|torch_|fp8|mx|sm_count|opaque|device_count"
    r"|current_device|empty_cache|synchronize|get_device_|seed|punica|all_gather|allreduce|nixl|deep_gemm|pdl|uuid"
)


def test_every_name_that_vllm_looks_up_on_the_platform_exists(platform):
    """A missing name is None with a warning in vLLM, and fails later as "NoneType is not callable"."""
    import vllm

    root = Path(vllm.__file__).parent
    places = ("config", "engine", "entrypoints", "v1/engine", "v1/executor", "v1/core", "inputs", "renderers")
    files = [file for place in places for file in (root / place).rglob("*.py")] + [root / "v1/worker/worker_base.py"]
    names = {name for file in files for name in re.findall(r"current_platform\.(\w+)", file.read_text())}
    missing = sorted(name for name in names if name not in dir(platform) and not FOREIGN.search(name))
    assert missing == []


@pytest.mark.parametrize(
    ("params", "inputs", "parameter"),
    [
        ({"prompt_logprobs": 3}, {"type": "token", "prompt_token_ids": [1]}, "prompt_logprobs"),
        ({}, {"type": "embeds", "prompt_embeds": object()}, "prompt_embeds"),
        ({}, {"type": "multimodal", "mm_kwargs": {"video": []}}, "messages"),
        ({}, {"type": "multimodal", "mm_kwargs": {"image": []}}, None),
        ({"logprobs": 3}, {"type": "token", "prompt_token_ids": [1]}, None),
    ],
)
def test_a_request_is_refused_by_its_parameter(platform, params, inputs, parameter):
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    request = SamplingParams(**params)
    if parameter is None:
        platform.validate_request(inputs, request)
        return
    with pytest.raises(VLLMValidationError, match="not supported on Tenstorrent") as caught:
        platform.validate_request(inputs, request)
    assert caught.value.parameter == parameter


def test_a_pooling_request_is_refused(platform):
    from vllm import PoolingParams
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="pooling"):
        platform.validate_request({"type": "token"}, PoolingParams())


def test_inputs_of_an_unknown_form_are_not_refused(platform):
    platform.validate_request(SimpleNamespace(), SimpleNamespace(prompt_logprobs=None))


def python(program: str, **environ: str | None) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TT_", "VLLM_"))}
    kept |= {key: value for key, value in environ.items() if value is not None}
    return subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True, check=False)


WITHOUT_TTNN = "import sys, os; sys.modules['ttnn'] = None\n"
ACTIVATE = WITHOUT_TTNN + "from tt_platform.vllm.activate import platform_plugin, register\n"


def test_an_ordinary_environment_is_not_touched():
    """No platform, no log, no variable, no import of torch or vLLM."""
    program = ACTIVATE + (
        "before = dict(os.environ)\n"
        "assert platform_plugin() is None\n"
        "register()\n"
        "assert dict(os.environ) == before\n"
        "assert not {'torch', 'vllm', 'tt_registry.vllm'} & set(sys.modules)\n"
    )
    ended = python(program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_host_runtime_activates_without_ttnn():
    ended = python(ACTIVATE + "print(platform_plugin())", TT_RUNTIME="host")
    assert ended.stdout.strip() == "vllm_tt_plugin.platform.TTPlatform"


def test_a_wrong_runtime_activates_the_platform_so_that_it_can_speak():
    ended = python(ACTIVATE + "print(platform_plugin())", TT_RUNTIME="gpu")
    assert ended.stdout.strip() == "vllm_tt_plugin.platform.TTPlatform"
    assert "allowed auto, ttnn, host" in ended.stderr


@pytest.mark.long
def test_an_environment_in_which_vllm_ignores_the_platform_is_said_to():
    program = ACTIVATE + "import logging\nlogging.basicConfig()\nregister()"
    ended = python(program, TT_RUNTIME="host", VLLM_TARGET_DEVICE="cpu")
    assert "VLLM_TARGET_DEVICE=cpu makes vLLM 0.28 and later ignore the Tenstorrent platform" in ended.stderr


def test_a_folder_named_ttnn_is_no_ttnn(tmp_path):
    (tmp_path / "ttnn").mkdir()
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom tt_platform.vllm.activate import *\n"
    program += "print(ttnn_imports())"
    assert python(program).stdout.strip() in ("False", "True" if "ttnn" in sys.modules else "False")


def test_a_broken_ttnn_leaves_the_environment_to_others(tmp_path):
    (tmp_path / "ttnn.py").write_text("raise SystemError('wrong firmware')\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom tt_platform.vllm.activate import *\n"
    program += "print(platform_plugin())"
    ended = python(program)
    assert (ended.stdout.strip(), ended.stderr) == ("None", "")


@pytest.mark.parametrize(("given", "kept"), [(None, "0"), ("", "0"), ("1", "1"), ("0", "0")])
def test_the_v1_pin_never_overrides_the_operator(given, kept):
    from tt_platform.vllm.activate import pin_v1_runner

    environ = {} if given is None else {"VLLM_USE_V2_MODEL_RUNNER": given}
    pin_v1_runner(environ)
    assert environ == {"VLLM_USE_V2_MODEL_RUNNER": kept}
