"""Fixtures of tt-sampling's tests."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing from threads, and on a busy machine their barriers cost a lot."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def vllm_kit() -> Iterator[SimpleNamespace]:
    """vLLM with a platform that has no pinned memory, and what the tests take from it.

    vLLM decides on pinned memory once, when it is first imported, so nothing may import it at module level.
    """
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    before = os.environ.get("TT_RUNTIME")
    os.environ["TT_RUNTIME"] = "host"
    try:
        from vllm.utils.torch_utils import PIN_MEMORY

        if PIN_MEMORY:
            pytest.skip("no vLLM platform without pinned memory is active: install vllm-tt-plugin")
        yield _kit()
    finally:
        if before is None:
            os.environ.pop("TT_RUNTIME")
        else:
            os.environ["TT_RUNTIME"] = before


def _kit() -> SimpleNamespace:
    from vllm.config import DeviceConfig, VllmConfig
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    from tt_sampling.vllm.host import Grammar, HostSampling

    def config(**model: object) -> object:
        """A vLLM configuration; `model` are the fields of its model part that the sampler reads."""
        made = VllmConfig(device_config=DeviceConfig("cpu"))
        made.model_config = SimpleNamespace(
            **{"logprobs_mode": "raw_logprobs", "logits_processors": None, "seed": 0, **model}
        )
        return made

    return SimpleNamespace(
        Grammar=Grammar,
        HostSampling=HostSampling,
        SamplingParams=SamplingParams,
        StructuredOutputsParams=StructuredOutputsParams,
        config=config,
    )


@pytest.fixture
def host_sampling(vllm_kit: SimpleNamespace) -> Callable[..., Any]:
    """host_sampling(vocab_size, always_compat, reasoning=None, **model fields): a HostSampling of 6 rows."""

    def make(vocab_size: int, always_compat: bool, reasoning: object = None, **model: object) -> Any:
        config = vllm_kit.config(**model)
        config.reasoning_config = reasoning
        return vllm_kit.HostSampling(config, 6, vocab_size, always_compat=always_compat)

    return make
