"""Registration in the real vLLM."""

import json
import sys
from types import SimpleNamespace

import pytest

from tt_registry import OverrideError, registration_plan

pytestmark = pytest.mark.vllm

OVERRIDE = {"TT_MODEL_CLASS_OVERRIDES": "TTLlamaForCausalLM=some.where:Other"}


@pytest.fixture
def vllm():
    """vLLM's registry, as vLLM ships it, and our adapter. Imported here, so that collecting the tests stays cheap."""
    pytest.importorskip("vllm")
    from vllm.model_executor.models.registry import ModelRegistry

    from tt_registry.vllm import register_models, registered_target

    before = dict(ModelRegistry.models)
    for name in [name for name in before if name.startswith("TT")]:
        del ModelRegistry.models[name]
    yield SimpleNamespace(registry=ModelRegistry, register=register_models, target=registered_target)
    ModelRegistry.models.clear()
    ModelRegistry.models.update(before)


@pytest.fixture
def bundles(tmp_path, clean_imports) -> dict[str, str]:
    path = tmp_path / "my-model"
    path.mkdir()
    (path / "vllm_metadata.json").write_text(json.dumps({"arch": "LlamaForCausalLM", "main_class": "vllm_bundle:M"}))
    (path / "vllm_bundle.py").write_text("class M: pass\n")
    return {"EXTRA_MODELS_DIR": str(tmp_path)}


def test_every_architecture_is_registered_lazily_under_its_prefixed_name(vllm) -> None:
    names = vllm.register(environ={})
    assert vllm.target("TTLlamaForCausalLM") == "models.tt_transformers.tt.generator_vllm:LlamaForCausalLM"
    assert {e.name for e in registration_plan(environ={}).entries if e.name.startswith("TT")} <= set(names)
    assert set(names) <= set(vllm.registry.get_supported_archs())
    assert not any(name == "models" or name.startswith("models.") for name in sys.modules)


def test_vllm_s_own_classes_stay_where_they_are(vllm) -> None:
    own = vllm.target("LlamaForCausalLM")
    names = vllm.register(environ={})
    assert vllm.target("LlamaForCausalLM") == own
    assert "LlamaForCausalLM" not in names


def test_registering_twice_changes_nothing_and_says_nothing_again(vllm, said, bundles) -> None:
    environ = {**bundles, "TT_MODEL_CLASS_OVERRIDES": "Qwen2ForCausalLM=some.where:Other"}
    first = vllm.register(environ=environ)
    entries, path = dict(vllm.registry.models), list(sys.path)
    assert vllm.register(environ=environ) == first
    assert vllm.registry.models == entries
    assert sys.path == path
    assert said == [
        "Applied TT_MODEL_CLASS_OVERRIDES: TTQwen2ForCausalLM -> some.where:Other",
        "Registered TT model TTLlamaForCausalLM -> vllm_bundle:M (from EXTRA_MODELS_DIR/my-model)",
    ]


def test_an_override_replaces_the_class_that_serves_and_not_vllm_s_own(vllm) -> None:
    """Under the bare name vLLM finds out what kind of model a checkpoint is; it needs its own class for that."""
    vllm.register(environ={})
    own = vllm.target("LlamaForCausalLM")
    names = vllm.register(environ=OVERRIDE)
    assert vllm.target("TTLlamaForCausalLM") == "some.where:Other"
    assert vllm.target("LlamaForCausalLM") == own
    assert "LlamaForCausalLM" not in names


def test_an_override_of_an_architecture_that_vllm_lacks_is_registered_under_both_names(vllm) -> None:
    vllm.register(environ={"TT_MODEL_CLASS_OVERRIDES": "ZebraForCausalLM=some.where:Zebra"})
    assert vllm.target("TTZebraForCausalLM") == vllm.target("ZebraForCausalLM") == "some.where:Zebra"


def test_anything_else_gives_way_to_what_is_registered_already(vllm) -> None:
    vllm.registry.register_model("TTLlamaForCausalLM", "launcher.own:Llama")
    names = vllm.register(environ={})
    assert vllm.target("TTLlamaForCausalLM") == "launcher.own:Llama"
    assert "TTLlamaForCausalLM" not in names


def test_vllm_loads_the_class_of_a_bundle(vllm, bundles) -> None:
    vllm.register(environ=bundles)
    loaded = vllm.registry.models["TTLlamaForCausalLM"].load_model_cls()
    assert (loaded.__module__, loaded.__name__) == ("vllm_bundle", "M")


def test_a_malformed_override_registers_nothing(vllm) -> None:
    before = dict(vllm.registry.models)
    with pytest.raises(OverrideError):
        vllm.register(environ={"TT_MODEL_CLASS_OVERRIDES": "nonsense"})
    assert vllm.registry.models == before


def test_an_unknown_variant_leaves_its_family_out_and_registers_the_rest(vllm, said) -> None:
    names = vllm.register(environ={"TT_LLAMA_TEXT_VER": "llama9"})
    assert "TTLlamaForCausalLM" not in names
    assert "TTQwen3ForCausalLM" in names
    assert len(said) == 1


def test_test_models_are_registered_on_request(vllm) -> None:
    assert "TTDummyNoOpModel" not in vllm.register(environ={})
    assert "TTDummyNoOpModel" in vllm.register(environ={}, register_test_models=True)


def test_under_the_host_runtime_only_host_models_are_registered(vllm, tree) -> None:
    tree(
        {
            "mesh_v-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mesh-v\nVersion: 1.0\n",
            "mesh_v-1.0.dist-info/entry_points.txt": "[tt_registry.host_models]\nZebraForCausalLM = mesh_v:Zebra\n",
        }
    )
    names = vllm.register(environ={}, runtime="host")
    assert "TTZebraForCausalLM" in names
    assert "ZebraForCausalLM" not in names
    assert "TTMllamaForConditionalGeneration" not in names
    assert vllm.target("TTZebraForCausalLM") == "mesh_v:Zebra"


def test_the_probe_sees_vllm_s_lazy_entries(vllm) -> None:
    """Fails when vLLM renames the parts of a lazy entry: registered_target must then be taught the new names."""
    vllm.registry.register_model("TTProbe", "a.b:C")
    assert vllm.target("TTProbe") == "a.b:C"
    assert vllm.target("TTNothing") is None


class OfLauncher:
    """A class that a launcher hands to vLLM itself."""


def test_what_a_launcher_registered_is_told_from_our_own(vllm) -> None:
    from tt_registry.vllm import foreign_target

    vllm.registry.register_model("TTLlamaForCausalLM", "launcher.own:Llama")
    vllm.registry.models["TTQwen2ForCausalLM"] = SimpleNamespace(model_cls=OfLauncher)
    vllm.register(environ={})
    assert foreign_target("TTLlamaForCausalLM") == "launcher.own:Llama"
    assert foreign_target("TTQwen2ForCausalLM") == f"{OfLauncher.__module__}:OfLauncher"
    assert foreign_target("TTQwen3ForCausalLM") is None
    assert foreign_target("TTNothing") is None


def test_an_entry_of_our_own_follows_the_environment(vllm) -> None:
    """Two engines in one process, the second with another implementation."""
    vllm.register(environ={})
    vllm.register(environ={"TT_LLAMA_TEXT_VER": "llama3_70b_galaxy"})
    assert vllm.target("TTLlamaForCausalLM") == "models.demos.llama3_70b_galaxy.tt.generator_vllm:LlamaForCausalLM"
