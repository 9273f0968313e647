"""Every call that this package makes binds to every signature that a real adapter is recorded to have."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import recorded_signatures as recorded

from tt_platform.capacity import Serving, tokens_all_users
from tt_sampling.device import DeviceParams
from tt_worker import kv
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.inputs import DecodeInputs, PrefillInputs
from tt_worker.loading import LoadRequest, load
from tt_worker.media import Image
from tt_worker.reload import ReloadPlan
from tt_worker.warmup import WarmupPlan, warm_up

ROWS, VOCABULARY, WIDTH = 4, 11, 3
PLANS = {
    "transition": ReloadPlan(True, False, True, True),
    "new block": ReloadPlan(False, True, False, False),
    "steady": ReloadPlan(False, False, False, False),
}
Calls = list[tuple[str, dict[str, Any]]]


def signature_of(text: str) -> inspect.Signature:
    return inspect.signature(eval(f"lambda {text}: None"))


def answer(name: str, given: dict[str, Any]) -> Any:
    """What a call returns, as far as the next call needs it."""
    given = {**given, **given.get("kwargs", {})}
    sampled = given.get("sampling_params") is not None
    if name == "prefill_forward":
        rows = len(given["tokens"])
        tokens = torch.zeros(rows, 1, dtype=torch.int64), torch.ones(rows)
        return tokens if sampled else torch.zeros(rows, 1, VOCABULARY)
    if name == "decode_forward":
        return {"sampled": sampled}
    if name == "read_decode_output":
        return given["tt_out"], ["event"]
    if name == "process_decode_output_host":
        return torch.zeros(ROWS, dtype=torch.int32) if given["tt_out"]["sampled"] else torch.zeros(ROWS, 1, VOCABULARY)
    return 4096 if name == "get_max_tokens_all_users" else object()


def method(name: str, text: str, calls: Calls, *, mrope: bool = False) -> Callable[..., Any]:
    signature = signature_of(text)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        calls.append((name, dict(bound.arguments)))
        given = answer(name, bound.arguments)
        return (given, torch.zeros(ROWS, 1)) if mrope and name == "prefill_forward" else given

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def family_class(family: str, calls: Calls) -> type:
    """A class whose methods have the recorded signatures, bind every call to them, and answer in the right shape."""
    mrope = recorded.FAMILIES[family].mrope
    known = recorded.signatures(family).items()
    methods = {name: staticmethod(method(name, text, calls, mrope=mrope)) for name, text in known}
    load_model = methods["initialize_vllm_model"].__func__

    def construct(*args: Any, **kwargs: Any) -> Any:
        load_model(*args, **kwargs)
        return cls()

    construct.__signature__ = load_model.__signature__  # type: ignore[attr-defined]
    methods["initialize_vllm_model"] = staticmethod(construct)
    cls = type("Recorded", (), dict(methods))
    if contract := recorded.FAMILIES[family].contract:
        cls.decode_input_update_contract = contract  # type: ignore[attr-defined]
    return cls


@pytest.fixture(params=recorded.FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def adapter_of(model: Any, groups: int, family: str = "") -> ModelAdapter:
    built = ModelAdapter(
        model,
        rows=ROWS,
        vocab_size=VOCABULARY,
        trace=TraceMode.of("all"),
        event_synchronize=lambda event: None,
        multimodal=bool(family) and recorded.FAMILIES[family].images,
        mrope=bool(family) and recorded.FAMILIES[family].mrope,
    )
    built.layer_groups = tuple(range(groups))
    return built


def tables(rows: int, groups: int) -> tuple[Any, ...]:
    return tuple(np.zeros((rows, WIDTH), np.int32) for _ in range(groups))


@pytest.mark.parametrize(
    ("family", "name", "keyword"),
    [
        ("text, June 2026", "initialize_vllm_model", "vllm_config"),
        ("text, June 2026", "warmup_model_decode", "can_sample_device_grammar"),
        ("Galaxy", "decode_forward", "reload_inputs"),
        ("Galaxy", "decode_forward", "page_tables_per_layer"),
        ("resident Qwen3.6", "decode_forward", "reset_batch"),
    ],
)
def test_the_record_refuses_what_the_real_class_refuses(family: str, name: str, keyword: str) -> None:
    """Fails when a closed signature is written down as an open one: then the tests below prove nothing."""
    signature = signature_of(recorded.signatures(family)[name])
    required = {p.name: None for p in signature.parameters.values() if p.default is p.empty}
    signature.bind(**required)
    with pytest.raises(TypeError, match=keyword):
        signature.bind(**required, **{keyword: None})


def test_loading_and_sizing_bind(family: str) -> None:
    calls: Calls = []
    cls = family_class(family, calls)
    engine_config = object()
    request = LoadRequest("config", ROWS, 512, 1, None, engine_config)
    load(cls, "mesh", request)
    assert calls[0][1].get("vllm_config") is (engine_config if family == "newest loading and warm-up" else None)
    assert tokens_all_users(cls, Serving("model", 1, 1, 512, ROWS)) == 4096


def test_allocation_and_warm_up_bind(family: str) -> None:
    calls: Calls = []
    model = family_class(family, calls)()
    layers = tuple(
        kv.LayerCache(group, group, 2, 64, 8, torch.float32) for group in range(recorded.FAMILIES[family].groups)
    )
    built = adapter_of(model, len(layers))
    built.kv_cache = kv.allocate(model, kv.CacheLayout(16, layers), 1)
    warm_up(built, WarmupPlan(sample_prefill=True, sample_decode=True, pages=WIDTH))
    names = [name for name, _ in calls]
    assert names[0] == ("allocate_kv_cache_per_layer" if len(layers) > 1 else "allocate_kv_cache")
    assert names[1:] == ["warmup_model_prefill", "warmup_model_decode"] * 2


@pytest.mark.parametrize("on_device", [True, False])
def test_prefill_binds(family: str, on_device: bool) -> None:
    groups = recorded.FAMILIES[family].groups
    calls: Calls = []
    built = adapter_of(family_class(family, calls)(), groups, family)
    ends = np.array([4, 2], np.int64)
    images = [(Image(1, 3, {"pixel_values": "pixels", "image_grid_thw": "grid"}),), ()]
    inputs = PrefillInputs(np.ones((2, 4), np.int32), tables(2, groups), np.zeros(2, np.int32), ends, [1, 3], images)
    outcome = built.prefill(inputs, DeviceParams(ROWS, VOCABULARY).packed([1, 3]) if on_device else None)
    assert (outcome.tokens is not None) == on_device
    assert outcome.rope_deltas == ([0, 0] if recorded.FAMILIES[family].mrope else None)
    given = [{**call, **call.get("kwargs", {})}.get("pixel_values") for _, call in calls]
    assert [row for rows in given for row in rows or ()] == (
        [["pixels"], None] if recorded.FAMILIES[family].images else []
    )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("penalised", [True, False])
@pytest.mark.parametrize("on_device", [True, False])
def test_decode_and_read_back_bind(family: str, on_device: bool, penalised: bool, plan: str) -> None:
    """Under v1 all four commands, under the legacy protocol reset_batch where the device samples, never both."""
    calls: Calls = []
    groups = recorded.FAMILIES[family].groups
    built = adapter_of(family_class(family, calls)(), groups, family)
    inputs = DecodeInputs(np.zeros((ROWS, 1), np.int32), np.full(ROWS, -1, np.int32), tables(ROWS, groups))
    history = np.full((ROWS, 5), -1, np.int32)
    outcome = built.submit_decode(
        inputs,
        DeviceParams(ROWS, VOCABULARY).view() if on_device else None,
        PLANS[plan],
        (history, history) if penalised else None,
        [0, 5],
    )()
    assert (outcome.tokens is not None) == on_device
    assert [name for name, _ in calls] == ["decode_forward", "read_decode_output", "process_decode_output_host"]
    given = {**calls[0][1], **calls[0][1].get("kwargs", {})}
    v1 = recorded.FAMILIES[family].contract > 0
    commands = [name for name in recorded.RELOAD.split(", ") if name in given]
    assert len(commands) == (4 if v1 else 0)
    assert not (v1 and "reset_batch" in given)
    assert given.get("rope_deltas_all_users") == ([0, 5] if recorded.FAMILIES[family].mrope else None)


def test_leaving_and_the_end_bind(family: str) -> None:
    calls: Calls = []
    built = adapter_of(family_class(family, calls)(), 1)
    built.release(2)
    built.release_captures()
    known = recorded.signatures(family)
    wanted = [name for name in ("release_request", "release_persistent_capture") if name in known]
    assert [name for name, _ in calls] == wanted
