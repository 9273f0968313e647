"""resolve() and known(): which list decides, and what the answer says."""

import json
import sys

import pytest

from tt_registry import Resolution, UnknownArchitecture, UnknownVariant, known, resolve
from tt_registry.architectures import BUILT_IN

BOOM = "raise SystemExit('this module must not be imported')\n"
TTT_GENERATOR = {"models/__init__.py": BOOM, "models/{}/tt/generator_vllm.py": BOOM}


def generator(*roots: str) -> dict[str, str]:
    return {path.format(root): text for root in roots for path, text in TTT_GENERATOR.items()}


@pytest.fixture
def bundles(tmp_path, clean_imports) -> dict[str, str]:
    path = tmp_path / "bundles" / "my-llama"
    path.mkdir(parents=True)
    (path / "vllm_metadata.json").write_text(
        json.dumps({"arch": "LlamaForCausalLM", "main_class": "my_llama:M", "data_parallel": "lanes"})
    )
    (path / "my_llama.py").write_text("class M:\n    model_capabilities = {'supports_async_decode': True}\n")
    return {"EXTRA_MODELS_DIR": str(tmp_path / "bundles")}


@pytest.fixture
def host_models(tree):
    """An installed distribution that declares host models."""

    def declare(text: str, name: str = "mesh-dist"):
        info = f"{name.replace('-', '_')}-1.0.dist-info"
        return tree(
            {
                "mesh_models.py": BOOM,
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                f"{info}/entry_points.txt": f"[tt_registry.host_models]\n{text}\n",
            },
            name=name,
        )

    return declare


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "TTLlamaForCausalLM"])
def test_a_built_in_is_resolved_under_both_names(name: str) -> None:
    found = resolve(name, environ={})
    assert (found.architecture, found.tt_architecture) == ("LlamaForCausalLM", "TTLlamaForCausalLM")
    assert found.source == "built-in"
    assert found.variant == "tt_transformers"
    assert found.variants[1:] == ("llama3_70b_galaxy", "llama2_70b", "llama31_8b_qb2")
    assert found.variant_variable == "TT_LLAMA_TEXT_VER"
    assert (found.data_parallel, found.multimodal, found.moe) == ("standard", False, False)
    assert found.target == f"{found.module}:{found.class_name}"


def test_the_variable_picks_target_and_data_parallel_kind() -> None:
    found = resolve("LlamaForCausalLM", environ={"TT_LLAMA_TEXT_VER": "llama3_70b_galaxy"})
    assert found.target == "models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM"
    assert found.data_parallel == "lanes"
    assert "TT_LLAMA_TEXT_VER=llama3_70b_galaxy" in found.origin


@pytest.mark.parametrize(
    ("roots", "chosen"),
    [
        (["tt_transformers"], "models.tt_transformers"),
        (["ttt_compat"], "models.ttt_compat"),
        (["tt_transformers", "ttt_compat"], "models.ttt_compat"),
    ],
)
def test_the_package_root_that_is_there_is_used_and_nothing_is_imported(tree, roots, chosen: str) -> None:
    tree(generator(*roots))
    found = resolve("LlamaForCausalLM", environ={})
    assert found.target == f"{chosen}.tt.generator_vllm:LlamaForCausalLM"
    assert found.importable
    assert found.reason == ""
    assert "models" not in sys.modules


def test_a_root_without_the_generator_is_not_a_root(tree) -> None:
    tree({**generator("tt_transformers"), "models/ttt_compat/__init__.py": BOOM})
    assert resolve("LlamaForCausalLM", environ={}).module == "models.tt_transformers.tt.generator_vllm"


def test_without_tt_metal_the_answer_says_what_is_missing_and_what_to_do(clean_imports) -> None:
    found = resolve("LlamaForCausalLM", environ={})
    assert not found.importable
    assert "'models'" in found.reason
    assert "PYTHONPATH" in found.reason
    assert "tt-metal" in found.reason


def test_override_beats_bundle_beats_built_in(bundles) -> None:
    target = "some.where:Other"
    with_override = {**bundles, "TT_MODEL_CLASS_OVERRIDES": f"LlamaForCausalLM={target}"}
    assert [(r.source, r.target) for r in (resolve("LlamaForCausalLM", environ=with_override),)] == [
        ("override", target)
    ]
    found = resolve("LlamaForCausalLM", environ=bundles)
    assert (found.source, found.target, found.origin) == ("bundle", "my_llama:M", "EXTRA_MODELS_DIR/my-llama")
    assert found.data_parallel == "lanes"
    assert found.importable
    assert found.search_path == (bundles["EXTRA_MODELS_DIR"] + "/my-llama",)
    assert resolve("LlamaForCausalLM", environ={}).source == "built-in"


def test_a_bundle_is_resolved_without_touching_sys_path(bundles) -> None:
    before = list(sys.path)
    found = resolve("LlamaForCausalLM", environ=bundles)
    assert found.declaration.capabilities is not None
    assert found.declaration.capabilities.supports_async_decode
    assert sys.path == before
    assert "my_llama" not in sys.modules


def test_an_override_may_name_a_class_of_a_bundle(bundles) -> None:
    environ = {**bundles, "TT_MODEL_CLASS_OVERRIDES": "Qwen2ForCausalLM=my_llama:M"}
    assert resolve("Qwen2ForCausalLM", environ=environ).importable


def test_what_an_override_does_not_say_is_as_in_the_table() -> None:
    found = resolve("GptOssForCausalLM", environ={"TT_MODEL_CLASS_OVERRIDES": "GptOssForCausalLM=a:B"})
    assert (found.data_parallel, found.moe) == ("lanes", True)
    galaxy = {"TT_LLAMA_TEXT_VER": "llama3_70b_galaxy", "TT_MODEL_CLASS_OVERRIDES": "LlamaForCausalLM=a:B"}
    assert resolve("LlamaForCausalLM", environ=galaxy).data_parallel == "lanes"


def test_an_override_to_a_class_of_the_table_brings_that_class_s_data_parallel_kind() -> None:
    target = "models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM"
    environ = {"TT_MODEL_CLASS_OVERRIDES": f"LlamaForCausalLM={target}"}
    assert resolve("LlamaForCausalLM", environ=environ).data_parallel == "lanes"


def test_an_unknown_variant_is_an_error_for_that_family_only() -> None:
    environ = {"TT_LLAMA_TEXT_VER": "llama9"}
    with pytest.raises(UnknownVariant, match="llama9"):
        resolve("LlamaForCausalLM", environ=environ)
    assert resolve("Qwen2ForCausalLM", environ=environ).source == "built-in"


def test_an_unknown_variant_does_not_stop_an_override_of_the_family() -> None:
    environ = {"TT_LLAMA_TEXT_VER": "llama9", "TT_MODEL_CLASS_OVERRIDES": "LlamaForCausalLM=a:B"}
    assert resolve("LlamaForCausalLM", environ=environ).target == "a:B"


def test_known_leaves_out_the_family_with_the_unknown_variant_and_warns_once(said) -> None:
    environ = {"TT_LLAMA_TEXT_VER": "llama9"}
    names = [r.architecture for r in known(environ=environ)]
    known(environ=environ)
    assert "LlamaForCausalLM" not in names
    assert "Qwen2ForCausalLM" in names
    assert len(said) == 1
    assert "TT_LLAMA_TEXT_VER='llama9'" in said[0]


def test_a_broken_bundle_is_one_warning_however_often_it_is_read(tmp_path, said) -> None:
    (tmp_path / "broken").mkdir()
    environ = {"EXTRA_MODELS_DIR": str(tmp_path)}
    for _ in range(3):
        resolve("LlamaForCausalLM", environ=environ)
        known(environ=environ)
    assert len(said) == 1
    assert "broken: cannot read vllm_metadata.json" in said[0]


def test_an_unknown_architecture_names_what_is_registered_and_what_to_do() -> None:
    with pytest.raises(UnknownArchitecture) as caught:
        resolve("FooForCausalLM", environ={})
    text = str(caught.value)
    assert "'FooForCausalLM'" in text
    assert "TTLlamaForCausalLM" in text
    assert "EXTRA_MODELS_DIR" in text
    assert isinstance(caught.value, ValueError)
    assert "LlamaForCausalLM" in caught.value.registered


def test_built_ins_off_is_said_to_who_asks_for_one() -> None:
    with pytest.raises(UnknownArchitecture, match="TT_VLLM_BUILTIN_MODELS"):
        resolve("LlamaForCausalLM", environ={"TT_VLLM_BUILTIN_MODELS": "0"})


def test_a_test_model_needs_its_option_and_the_error_says_so() -> None:
    with pytest.raises(UnknownArchitecture, match="register_test_models"):
        resolve("DummyNoOpModel", environ={})
    found = resolve("TTDummyNoOpModel", environ={}, register_test_models=True)
    assert found.target == "models.vllm_test_utils.no_op_test.test_model:DummyNoOpModel"


def test_known_lists_each_architecture_once_with_its_winner(bundles) -> None:
    environ = {**bundles, "TT_MODEL_CLASS_OVERRIDES": "Gemma4ForCausalLM=a:B,NewForCausalLM=c:D"}
    found = {r.architecture: r.source for r in known(environ=environ)}
    assert len(found) == len(known(environ=environ))
    assert found["Gemma4ForCausalLM"] == found["NewForCausalLM"] == "override"
    assert found["LlamaForCausalLM"] == "bundle"
    assert found["Qwen3ForCausalLM"] == "built-in"
    assert set(found) >= {row.name for row in BUILT_IN if not row.test_only}


def test_under_the_host_runtime_the_models_come_from_entry_points(host_models) -> None:
    host_models("ZebraForCausalLM = mesh_models:Zebra")
    found = resolve("TTZebraForCausalLM", environ={}, runtime="host")
    assert (found.source, found.target, found.origin) == ("host", "mesh_models:Zebra", "mesh-dist")
    assert found.importable
    assert "mesh_models" not in sys.modules
    with pytest.raises(UnknownArchitecture):
        resolve("ZebraForCausalLM", environ={}, runtime="ttnn")


def test_under_the_host_runtime_the_table_is_not_served_and_the_error_says_why(host_models) -> None:
    host_models("ZebraForCausalLM = mesh_models:Zebra")
    with pytest.raises(UnknownArchitecture, match="needs a card") as caught:
        resolve("MllamaForConditionalGeneration", environ={}, runtime="host")
    assert "TTZebraForCausalLM" in str(caught.value)


def test_a_host_model_is_run_as_its_architecture_is(host_models) -> None:
    """Mixtures of experts in lanes, or not in parallel at all; an architecture that the table lacks is plain."""
    host_models("GptOssForCausalLM = mesh_models:GptOss\nZebraForCausalLM = mesh_models:Zebra")
    gpt_oss = resolve("GptOssForCausalLM", environ={}, runtime="host")
    assert (gpt_oss.data_parallel, gpt_oss.moe) == ("lanes", True)
    zebra = resolve("ZebraForCausalLM", environ={}, runtime="host")
    assert (zebra.data_parallel, zebra.moe) == ("standard", False)


def test_overrides_and_bundles_outrank_host_models(host_models, bundles) -> None:
    host_models("LlamaForCausalLM = mesh_models:Llama")
    environ = {**bundles, "TT_MODEL_CLASS_OVERRIDES": "QuollForCausalLM=a:B"}
    assert resolve("LlamaForCausalLM", environ=environ, runtime="host").source == "bundle"
    assert resolve("QuollForCausalLM", environ=environ, runtime="host").source == "override"


def test_built_ins_off_does_not_touch_host_models(host_models) -> None:
    host_models("ZebraForCausalLM = mesh_models:Zebra")
    assert resolve("ZebraForCausalLM", environ={"TT_VLLM_BUILTIN_MODELS": "0"}, runtime="host").source == "host"


def test_a_malformed_host_model_is_one_warning_and_the_rest_is_served(host_models, said) -> None:
    host_models("ZebraForCausalLM = mesh_models:Zebra\nBadForCausalLM = mesh_models")
    assert "ZebraForCausalLM" in [r.architecture for r in known(environ={}, runtime="host")]
    assert "Skipping tt_registry.host_models entry 'BadForCausalLM' of mesh-dist" in said[0]


def test_two_host_models_for_one_architecture_are_told(host_models, said) -> None:
    host_models("ZebraForCausalLM = mesh_models:Zebra")
    host_models("ZebraForCausalLM = another:Zebra", name="second-dist")
    found = resolve("ZebraForCausalLM", environ={}, runtime="host")
    assert found.target == "another:Zebra"
    assert "Two packages declare a host model for ZebraForCausalLM" in said[0]


def test_a_runtime_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed ttnn, host"):
        resolve("LlamaForCausalLM", environ={}, runtime="auto")  # type: ignore[arg-type]


def test_a_resolution_is_a_value() -> None:
    assert resolve("LlamaForCausalLM", environ={}) == resolve("TTLlamaForCausalLM", environ={})
    assert len({resolve("LlamaForCausalLM", environ={}), resolve("Qwen2ForCausalLM", environ={})}) == 2
    assert isinstance(resolve("LlamaForCausalLM", environ={}), Resolution)
