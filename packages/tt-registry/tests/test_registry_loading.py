"""From a resolution to the class."""

import json
import sys

import pytest

from tt_registry import ModelNotImportable, TargetError, UnknownArchitecture, load_class, models_for, resolve


@pytest.fixture
def bundles(tmp_path, clean_imports) -> dict[str, str]:
    path = tmp_path / "my-llama"
    path.mkdir()
    (path / "vllm_metadata.json").write_text(json.dumps({"arch": "LlamaForCausalLM", "main_class": "load_llama:M"}))
    (path / "load_llama.py").write_text("class M: pass\nclass N: pass\n")
    return {"EXTRA_MODELS_DIR": str(tmp_path)}


def test_a_bundle_s_class_is_loaded_from_its_folder_at_the_end_of_the_path(bundles) -> None:
    resolution = resolve("LlamaForCausalLM", environ=bundles)
    loaded = load_class(resolution)
    assert (loaded.__module__, loaded.__name__) == ("load_llama", "M")
    assert sys.path[-1] == resolution.search_path[0]
    load_class(resolution)
    assert sys.path.count(resolution.search_path[0]) == 1


def test_a_missing_tree_names_tt_metal_and_pythonpath(clean_imports) -> None:
    with pytest.raises(ModelNotImportable) as caught:
        load_class(resolve("LlamaForCausalLM", environ={}))
    text = str(caught.value)
    assert "TTLlamaForCausalLM is served by models.tt_transformers.tt.generator_vllm:LlamaForCausalLM" in text
    assert "PYTHONPATH" in text
    assert "tt-metal" in text


def test_a_missing_module_of_another_name_is_not_blamed_on_tt_metal() -> None:
    with pytest.raises(ModelNotImportable, match="holds 'nowhere_at_all'") as caught:
        load_class("nowhere_at_all.x:Y")
    assert "tt-metal" not in str(caught.value)


def test_a_missing_ttnn_is_named_as_such(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ttnn", None)
    tree({"needs_ttnn.py": "import ttnn\nclass M: pass\n"})
    with pytest.raises(ModelNotImportable, match="It needs ttnn"):
        load_class("needs_ttnn:M")


def test_another_missing_dependency_is_shown_with_its_cause(tree) -> None:
    tree({"needs_more.py": "import a_dependency_that_is_not_there\n"})
    with pytest.raises(ModelNotImportable, match="a_dependency_that_is_not_there") as caught:
        load_class("needs_more:M")
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_missing_class_names_the_file_and_the_near_ones(bundles) -> None:
    resolve_path = resolve("LlamaForCausalLM", environ=bundles).search_path[0]
    load_class(resolve("LlamaForCausalLM", environ=bundles))
    with pytest.raises(ModelNotImportable) as caught:
        load_class("load_llama:Model")
    assert f"{resolve_path}/load_llama.py has no class 'Model'; it has M, N" in str(caught.value)


def test_something_that_is_no_class_is_refused(tree) -> None:
    tree({"not_a_class.py": "Model = 3\n"})
    with pytest.raises(ModelNotImportable, match="it has no class at all"):
        load_class("not_a_class:Model")


def test_an_error_in_the_module_s_own_code_passes_unchanged(tree) -> None:
    tree({"own_bug.py": "1 / 0\n"})
    with pytest.raises(ZeroDivisionError):
        load_class("own_bug:Model")


def test_a_target_that_is_none_is_refused() -> None:
    with pytest.raises(TargetError):
        load_class("just.a.module")


def test_the_first_served_architecture_of_a_checkpoint_is_taken(bundles) -> None:
    resolution, model_class = models_for(["OtherForCausalLM", "LlamaForCausalLM"], environ=bundles)
    assert resolution.architecture == "LlamaForCausalLM"
    assert model_class.__name__ == "M"


def test_when_none_is_served_the_error_speaks_of_the_first() -> None:
    with pytest.raises(UnknownArchitecture, match="'AForCausalLM'"):
        models_for(["AForCausalLM", "BForCausalLM"], environ={})


def test_no_architecture_at_all_is_an_error_of_the_checkpoint() -> None:
    with pytest.raises(ValueError, match=r"config\.json"):
        models_for([], environ={})
