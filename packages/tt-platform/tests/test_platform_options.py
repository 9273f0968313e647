"""The option table: types, values, defaults, unknown keys."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_platform.option_kinds import OptionError
from tt_platform.options import TTOptions, unknown_option

GOOD = {
    "sample_on_device_mode": ["all", "decode_only", None],
    "trace_mode": ["all", "decode_only", "none"],
    "enable_model_warmup": [True, False],
    "trace_region_size": [0, 216580672, None],
    "worker_l1_size": [1344544],
    "l1_small_size": [768],
    "fabric_config": ["FABRIC_2D", "CUSTOM"],
    "fabric_reliability_mode": ["RELAXED_INIT"],
    "dispatch_core_axis": ["row", "col", None],
    "always_compat_sampling": [True, False],
    "seeded_on_host": [True, False],
    "decode_interleave_enabled": [True, False],
    "decode_interleave_prefill_steps": [1, 7],
    "decode_interleave_decode_steps": [1, 7],
    "decode_interleave_target_itl_ms": [50, 0.5, None],
    "step_time_limit_s": [30, 0.5, None],
    "optimizations": ["performance", "accuracy"],
    "register_test_models": [True, False],
    "step_log": ["/tmp/steps.jsonl", None],
    "rank_binding": ["binding.yaml"],
    "mpi_args": ["--bind-to none"],
    "extra_ttrun_args": ["-v"],
    "config_pkl_dir": ["/tmp"],
    "env_passthrough": ["VLLM_*", ["VLLM_*", "MESH_DEVICE"]],
}
BAD = {
    "sample_on_device_mode": ["prefill", "", 1, True, ["all"]],
    "trace_mode": ["None", None, True, {}],
    "enable_model_warmup": ["true", 1, 0, None],
    "trace_region_size": [-1, 1.0, "1", True],
    "worker_l1_size": [-1, 1.5, False],
    "l1_small_size": ["768", []],
    "fabric_config": ["", 1, ["FABRIC_1D"]],
    "fabric_reliability_mode": ["", 0, "LAX"],
    "dispatch_core_axis": ["column", "ROW", 0],
    "always_compat_sampling": ["no", 0],
    "seeded_on_host": ["yes", 1],
    "decode_interleave_enabled": ["on", 1],
    "decode_interleave_prefill_steps": [0, True, 1.0, None],
    "decode_interleave_decode_steps": [0, -1, "1"],
    "decode_interleave_target_itl_ms": [0, -1.0, float("nan"), float("inf"), True, "5", 10**400],
    "step_time_limit_s": [0, -1, True, "5"],
    "optimizations": ["speed", {}],
    "register_test_models": ["true", None],
    "step_log": ["", 1, "a\0b"],
    "rank_binding": ["", 1],
    "mpi_args": ["", []],
    "extra_ttrun_args": [[]],
    "config_pkl_dir": [1],
    "env_passthrough": ["", [], [1], {"a": 1}],
}
NAMES = [field.name for field in dataclasses.fields(TTOptions)]


def test_every_option_has_cases_here():
    assert sorted(GOOD) == sorted(NAMES)
    assert sorted(BAD) == sorted(NAMES)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in GOOD.items() for value in values])
def test_an_allowed_value_is_kept(key, value):
    kept = getattr(TTOptions.parse({key: value}), key)
    assert kept == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_a_wrong_value_names_the_key_the_value_and_what_is_allowed(key, value):
    with pytest.raises(OptionError) as caught:
        TTOptions.parse({key: value})
    text = str(caught.value)
    assert f"additional_config.tt.{key}=" in text
    assert repr(value) in text
    assert "allowed " in text


def test_the_defaults_are_those_of_a_launch_without_options():
    options = TTOptions.of({})
    assert options == TTOptions() == TTOptions.of(None) == TTOptions.parse(None)
    assert (options.trace_mode, options.enable_model_warmup, options.sample_on_device_mode) == ("all", True, None)
    assert (options.decode_interleave_prefill_steps, options.decode_interleave_decode_steps) == (2, 1)


@pytest.mark.parametrize("config", [[], "tt", 3, [("tt", {})]])
def test_an_additional_config_that_is_no_object_is_named(config):
    with pytest.raises(OptionError, match=r"--additional-config=.*JSON object"):
        TTOptions.of(config)


@pytest.mark.parametrize("tt", [[], "x", 1, True])
def test_a_tt_entry_that_is_no_object_is_named(tt):
    with pytest.raises(OptionError, match=r"additional_config\.tt=.*JSON object"):
        TTOptions.of({"tt": tt})


def test_other_entries_of_additional_config_are_not_ours(caplog):
    assert TTOptions.of({"_tt_resolved_lane_count": 4, "other": object()}) == TTOptions()
    assert not caplog.records


def test_an_unknown_key_is_a_warning_with_the_nearest_name(caplog):
    with caplog.at_level(logging.WARNING, "vllm.tt"):
        assert TTOptions.parse({"trace_mod": "none", "zzzz": 1}) == TTOptions()
    first, second = caplog.messages
    assert "additional_config.tt.trace_mod " in first
    assert "'trace_mode'" in first
    assert "docs/options.md" in second
    assert unknown_option("dispatch_axis").endswith("'dispatch_core_axis'?")


def test_a_key_of_other_launchers_is_tolerated(caplog):
    assert TTOptions.parse({"input_queue_batching_delay": 5}) == TTOptions()
    assert not caplog.records


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(), JSON, max_size=4) | JSON)
def test_parsing_options_is_total(mapping):
    try:
        options = TTOptions.parse(mapping)
    except OptionError:
        return
    assert isinstance(options, TTOptions)


@given(st.sampled_from(NAMES), JSON)
def test_a_kept_value_is_accepted_again(name, value):
    try:
        kept = getattr(TTOptions.parse({name: value}), name)
    except OptionError:
        return
    if kept is not None:
        assert getattr(TTOptions.parse({name: kept}), name) == kept


def test_options_travel_as_json():
    options = TTOptions.parse({"env_passthrough": ["A"], "trace_region_size": 5})
    assert json.loads(json.dumps(dataclasses.asdict(options)))["trace_region_size"] == 5


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TTOptions().trace_mode = "none"  # type: ignore[misc]


def test_every_option_has_a_purpose():
    for field in dataclasses.fields(TTOptions):
        assert field.metadata["purpose"].endswith(".")


@pytest.mark.parametrize("page", ["options", "rules"])
def test_the_generated_page_is_current(page):
    """Fails when the table in the code changed and the page did not: python -m tt_platform NAME > docs/NAME.md."""
    from tt_platform import docs

    file = Path(__file__).parents[3] / "docs" / f"{page}.md"
    if not file.exists():
        pytest.skip("not in the source tree")
    assert file.read_text() == getattr(docs, f"{page}_page")()
