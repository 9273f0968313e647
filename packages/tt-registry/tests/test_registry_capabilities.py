"""Typed capabilities of a model class."""

from dataclasses import FrozenInstanceError, fields
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_registry import Capabilities, CapabilityError


class Full:
    model_capabilities: ClassVar = {
        "supports_prefix_caching": True,
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_device_penalties": False,
        "max_device_top_k": 32,
        "output_tokens_per_step": 4,
        "spec_requirements": ["device_propose", "hidden_feed"],
        "spec_hidden_handoff": "on_device",
        "fabric_config": {"config": object(), "num_planes": 2},
        "something_new": 7,
    }
    _HYBRID_KV_CACHE_GROUPS_ENABLED = True
    decode_input_update_contract = 1
    tt_supported_decode_batch_sizes = (32, 1, 8, 8)


def test_declared_values_are_read() -> None:
    found = Capabilities.of(Full)
    assert found.supports_prefix_caching
    assert found.supports_async_decode
    assert not found.supports_device_penalties
    assert not found.supports_chunked_prefill
    assert (found.max_device_top_k, found.output_tokens_per_step) == (32, 4)
    assert found.spec_requirements == {"device_propose", "hidden_feed"}
    assert found.spec_hidden_handoff == {"on_device"}
    assert found.is_block_output
    assert found.hybrid_kv_cache_groups
    assert found.decode_input_update_contract == 1
    assert found.supported_decode_batch_sizes == (1, 8, 32)


def test_unknown_keys_are_kept_and_reported() -> None:
    found = Capabilities.of(Full)
    assert found.unknown == ("something_new",)
    assert found.declared["something_new"] == 7


def test_a_class_that_declares_nothing_has_the_defaults() -> None:
    found = Capabilities.of(type("Bare", (), {}))
    defaults = Capabilities()
    assert all(getattr(found, name) == getattr(defaults, name) for name in Capabilities.field_names())
    assert found.supports_device_penalties
    assert not found.supports_async_decode
    assert not found.is_block_output


def test_the_class_s_dict_is_never_changed_nor_shared() -> None:
    before = dict(Full.model_capabilities)
    found = Capabilities.of(Full)
    with pytest.raises(TypeError):
        found.declared["x"] = 1  # type: ignore[index]
    assert found.fabric_config is not None
    with pytest.raises(TypeError):
        found.fabric_config["x"] = 1  # type: ignore[index]
    assert Full.model_capabilities == before
    assert found.fabric_config["config"] is Full.model_capabilities["fabric_config"]["config"]


def test_capabilities_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Capabilities().supports_async_decode = True  # type: ignore[misc]


def test_the_hook_outranks_the_dict() -> None:
    class Hooked(Full):
        @classmethod
        def get_model_capabilities(cls):
            return {"supports_async_decode": False}

    found = Capabilities.of(Hooked)
    assert not found.supports_async_decode
    assert not found.supports_prefix_caching


def test_a_subclass_s_dict_replaces_its_parent_s() -> None:
    child = type("Child", (Full,), {"model_capabilities": {"supports_async_decode": True}})
    assert not Capabilities.of(child).supports_prefix_caching


def test_an_object_may_differ_from_its_class() -> None:
    class Model:
        model_capabilities: ClassVar = {"max_device_top_k": 1}

        @property
        def decode_input_update_contract(self) -> int:
            return 1

    model = Model()
    model.model_capabilities = {"max_device_top_k": 32}
    assert Capabilities.of(Model).decode_input_update_contract == 0
    assert Capabilities.of(Model).max_device_top_k == 1
    assert Capabilities.of(model).decode_input_update_contract == 1
    assert Capabilities.of(model).max_device_top_k == 32


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("supports_async_decode", 1),
        ("supports_async_decode", None),
        ("supports_async_decode", "yes"),
        ("output_tokens_per_step", 0),
        ("output_tokens_per_step", True),
        ("output_tokens_per_step", 2.0),
        ("output_tokens_per_step", None),
        ("max_device_top_k", 0),
        ("max_device_top_k", "32"),
        ("tt_block_kv_extent_tokens", -1),
        ("spec_requirements", "telepathy"),
        ("spec_requirements", ["hidden_feed", 1]),
        ("spec_requirements", {"hidden_feed": 1}),
        ("spec_requirements", 3),
        ("fabric_config", "FABRIC_1D"),
        ("fabric_config", {1: 2}),
    ],
)
def test_a_wrong_value_names_the_class_the_key_and_what_is_allowed(key: str, value: object) -> None:
    model = type("Model", (), {"model_capabilities": {key: value}})
    with pytest.raises(CapabilityError) as caught:
        Capabilities.of(model)
    text = str(caught.value)
    assert f"{__name__}.Model" in text
    assert key in text
    assert repr(value) in text
    assert "allowed" in text


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("_HYBRID_KV_CACHE_GROUPS_ENABLED", 1),
        ("decode_input_update_contract", True),
        ("decode_input_update_contract", -1),
        ("tt_supported_decode_batch_sizes", 32),
        ("tt_supported_decode_batch_sizes", [0]),
        ("tt_supported_decode_batch_sizes", ["8"]),
        ("tt_supported_decode_batch_sizes", "8"),
    ],
)
def test_a_wrong_attribute_names_the_class_and_the_attribute(attribute: str, value: object) -> None:
    with pytest.raises(CapabilityError, match=attribute):
        Capabilities.of(type("Model", (), {attribute: value}))


@pytest.mark.parametrize("declared", [None, [], "x", {1: True}])
def test_a_declaration_that_is_no_dict_of_strings_is_an_error(declared: object) -> None:
    with pytest.raises(CapabilityError, match="model_capabilities"):
        Capabilities.of(type("Model", (), {"model_capabilities": declared}))


def test_a_hook_that_needs_an_object_is_named() -> None:
    class Model:
        def get_model_capabilities(self):
            return {}

    with pytest.raises(CapabilityError, match="classmethod"):
        Capabilities.of(Model)
    assert Capabilities.of(Model()).unknown == ()


def test_an_error_inside_the_hook_is_not_swallowed() -> None:
    class Model:
        model_capabilities: ClassVar = {}

        @classmethod
        def get_model_capabilities(cls):
            return cls.no_such_attribute

    with pytest.raises(AttributeError, match="no_such_attribute"):
        Capabilities.of(Model)


CONTRACT_KEYS = """
supports_prefix_caching supports_async_decode supports_async_decode_overlap supports_sample_on_device
supports_chunked_prefill supports_device_chunked_prefill max_device_top_k supports_device_penalties
supports_device_grammar resumed_prefill_token_alignment chunked_prefill_token_alignment fabric_config
output_tokens_per_step tt_adaptive_block_output tt_adaptive_block_max_prompt_tokens tt_block_kv_extent_tokens
supports_spec_decode supports_async_spec_decode spec_requirements spec_hidden_handoff supports_compact_host_logits
supports_selective_host_readback accepts_trace_mode tt_prefill_chunk_tokens tt_adaptive_block_batched
tt_adaptive_block_ragged tt_block_output_chunked_prefill tt_block_output_kv_lookahead_tokens
"""


def test_every_key_of_the_contract_has_a_field() -> None:
    assert set(CONTRACT_KEYS.split()) <= {f.name for f in fields(Capabilities)}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(CONTRACT_KEYS.split()) | st.text(max_size=4), VALUES, max_size=4))
def test_parsing_is_total(declared: dict[str, object]) -> None:
    """A value or a CapabilityError, never another exception; and the dict is as it was."""
    copy = dict(declared)
    try:
        found = Capabilities.parse(declared)
    except CapabilityError:
        found = None
    assert declared == copy or any(value != value for value in copy.values())
    assert found is None or set(found.unknown) == set(declared) - set(CONTRACT_KEYS.split())
