"""The built-in table."""

import pytest

from tt_registry import UnknownVariant
from tt_registry.architectures import BUILT_IN, GPT_OSS, LLAMA, TTT_ROOTS, built_in, served

CONTRACT_NAMES = """
Llama Mllama/C Qwen2 Qwen3 Qwen3_5/C Qwen2_5_VL/C Qwen3VL/C Mistral Mistral3/C Gemma3/C Gemma4 Gemma4/C Gemma4Unified/C
DiffusionGemma DeepseekV3 GptOss Arcee
"""


def test_every_architecture_of_the_contract_is_there() -> None:
    names = {
        name.replace("/C", "ForConditionalGeneration") if "/C" in name else f"{name}ForCausalLM"
        for name in CONTRACT_NAMES.split()
    }
    assert names | {"DiffusionGemmaForBlockDiffusion"} == {row.name for row in BUILT_IN if not row.test_only}


def test_names_are_unique_and_bare() -> None:
    names = [row.name for row in BUILT_IN]
    assert len(set(names)) == len(names)
    assert all(built_in(f"TT{name}") is built_in(name) for name in names)


def test_the_six_gemma_4_names_share_one_class() -> None:
    rows = [row for row in BUILT_IN if row.name.startswith("Gemma4")]
    assert len(rows) == 3
    assert all(row.also_bare for row in rows)
    assert {row.variants[0].target for row in rows} == {"models.demos.gemma4.tt.generator_vllm:Gemma4ForCausalLM"}


def test_the_three_single_execute_families_run_in_lanes_and_no_other_does() -> None:
    lanes = {(row.name, v.name) for row in BUILT_IN for v in row.variants if v.data_parallel == "lanes"}
    assert lanes == {
        ("LlamaForCausalLM", "llama3_70b_galaxy"),
        ("Qwen3ForCausalLM", "qwen3_32b_galaxy"),
        ("GptOssForCausalLM", ""),
    }


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_unset_or_empty_variable_means_the_default(value: str | None) -> None:
    environ = {} if value is None else {"TT_LLAMA_TEXT_VER": value}
    assert LLAMA.select(environ).name == "tt_transformers"


@pytest.mark.parametrize("name", LLAMA.variant_names)
def test_each_variant_is_picked_by_its_name(name: str) -> None:
    assert LLAMA.select({"TT_LLAMA_TEXT_VER": f" {name} "}).name == name


def test_an_unknown_variant_names_the_variable_the_value_and_what_is_allowed() -> None:
    with pytest.raises(UnknownVariant) as caught:
        LLAMA.select({"TT_LLAMA_TEXT_VER": "llama9"})
    text = str(caught.value)
    assert "TT_LLAMA_TEXT_VER='llama9'" in text
    assert all(name in text for name in LLAMA.variant_names)


def test_an_architecture_without_a_variable_ignores_the_environment() -> None:
    assert GPT_OSS.select({"": "x"}) is GPT_OSS.variants[0]
    assert GPT_OSS.variant_names == ()


@pytest.mark.parametrize("off", ["0", "false", "No", " OFF "])
def test_built_ins_off_leaves_the_permanent_names_only(off: str) -> None:
    left = served({"TT_VLLM_BUILTIN_MODELS": off})
    assert {row.name for row in left} == {"DiffusionGemmaForCausalLM", "DiffusionGemmaForBlockDiffusion"}


@pytest.mark.parametrize("on", ["", "1", "true", "anything"])
def test_built_ins_stay_on_for_any_other_value(on: str) -> None:
    assert served({"TT_VLLM_BUILTIN_MODELS": on}) == served({})


def test_test_models_are_there_only_on_request() -> None:
    assert not any(row.test_only for row in served({}))
    extra = set(served({}, register_test_models=True)) - set(served({}))
    assert {row.name for row in extra} == {
        "DummyNoOpModel",
        "DummySpecDecodeModel",
        "DummyT3000MultiProcessModel",
        "DummyDualGlxModel",
    }


def test_the_newest_package_root_comes_first() -> None:
    assert TTT_ROOTS == ("models.ttt_compat", "models.tt_transformers")
