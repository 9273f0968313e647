"""What is registered, under which names, with which log lines."""

import json

from tt_registry import registration_plan


def by_name(**kwargs):
    return {entry.name: entry for entry in registration_plan(**kwargs).entries}


def test_everything_has_its_prefixed_name_and_the_contract_s_bare_ones() -> None:
    names = set(by_name(environ={}))
    assert {"TTLlamaForCausalLM", "TTGptOssForCausalLM"} <= names
    bare = {name for name in names if not name.startswith("TT")}
    assert bare == {
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "DiffusionGemmaForCausalLM",
    }


def test_only_an_override_replaces_and_only_under_the_name_that_serves() -> None:
    entries = by_name(environ={"TT_MODEL_CLASS_OVERRIDES": "LlamaForCausalLM=a:B"})
    assert {name for name, entry in entries.items() if entry.force} == {"TTLlamaForCausalLM"}
    assert "LlamaForCausalLM" in entries
    assert {entries[name].target for name in ("TTLlamaForCausalLM", "LlamaForCausalLM")} == {"a:B"}


def test_the_override_line_is_the_one_operators_look_for() -> None:
    entries = by_name(environ={"TT_MODEL_CLASS_OVERRIDES": "LlamaForCausalLM=a:B"})
    assert entries["TTLlamaForCausalLM"].message == "Applied TT_MODEL_CLASS_OVERRIDES: TTLlamaForCausalLM -> a:B"
    assert sum(bool(entry.message) for entry in entries.values()) == 1


def test_a_bundle_brings_its_line_and_its_folder(tmp_path, clean_imports) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "vllm_metadata.json").write_text(json.dumps({"arch": "XForCausalLM", "main_class": "x_model:X"}))
    (folder / "x_model.py").write_text("")
    plan = registration_plan(environ={"EXTRA_MODELS_DIR": str(tmp_path), "TT_VLLM_BUILTIN_MODELS": "0"})
    entry = plan.entries[0]
    assert entry.message == "Registered TT model TTXForCausalLM -> x_model:X (from EXTRA_MODELS_DIR/my-model)"
    assert not entry.force
    assert plan.search_path == (str(folder),)


def test_test_models_come_with_their_option() -> None:
    assert "TTDummyNoOpModel" not in by_name(environ={})
    assert "TTDummyNoOpModel" in by_name(environ={}, register_test_models=True)
