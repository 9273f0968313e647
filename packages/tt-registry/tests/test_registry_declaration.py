"""Capabilities read from source text, without an import."""

import sys

import pytest

from tt_registry.declaration import read_declaration

BOOM = "raise SystemExit('this module must not be imported')\n"


def test_literals_are_values_and_the_rest_is_decided_at_import(tree) -> None:
    tree(
        {
            "decl_a.py": BOOM
            + "import os, ttnn\n"
            + "class Model:\n"
            + "    model_capabilities = {\n"
            + "        'supports_async_decode': True,\n"
            + "        'max_device_top_k': 32,\n"
            + "        'supports_prefix_caching': os.environ.get('X') == '1',\n"
            + "        'fabric_config': {'config': ttnn.FabricConfig.FABRIC_1D_RING},\n"
            + "        'novelty': 1,\n"
            + "        'odd': {[]: 1},\n"
            + "    }\n"
            + "    decode_input_update_contract: int = 1\n"
            + "    _HYBRID_KV_CACHE_GROUPS_ENABLED = os.environ.get('Y') == '1'\n"
        }
    )
    found = read_declaration("decl_a", "Model")
    assert found.capabilities is not None
    assert found.capabilities.supports_async_decode
    assert found.capabilities.max_device_top_k == 32
    assert found.capabilities.decode_input_update_contract == 1
    assert found.capabilities.unknown == ("novelty",)
    assert found.capabilities.owner == "decl_a.Model"
    assert sorted(found.undecided) == [
        "_HYBRID_KV_CACHE_GROUPS_ENABLED",
        "fabric_config",
        "odd",
        "supports_prefix_caching",
    ]
    assert found.note == ""
    assert "decl_a" not in sys.modules


def test_what_a_class_does_not_say_its_bases_say_in_their_order(tree) -> None:
    tree(
        {
            "decl_pkg/__init__.py": BOOM,
            "decl_pkg/base.py": BOOM
            + "class Mixin:\n    decode_input_update_contract = 1\n"
            + "class Base:\n    decode_input_update_contract = 0\n    model_capabilities = {'max_device_top_k': 8}\n",
            "decl_pkg/model.py": BOOM
            + "from .base import Base as Parent, Mixin\n"
            + "class Model(Mixin, Parent):\n    pass\n"
            + "class Other(Parent):\n    model_capabilities = {}\n",
        }
    )
    found = read_declaration("decl_pkg.model", "Model").capabilities
    assert found is not None
    assert (found.max_device_top_k, found.decode_input_update_contract) == (8, 1)
    other = read_declaration("decl_pkg.model", "Other").capabilities
    assert other is not None
    assert (other.max_device_top_k, other.decode_input_update_contract) == (None, 0)


def test_a_class_that_is_only_passed_on_is_followed(tree) -> None:
    tree(
        {
            "decl_fwd/__init__.py": BOOM + "from decl_fwd.inner import Inner as Model\n",
            "decl_fwd/inner.py": BOOM + "class Inner:\n    model_capabilities = {'supports_async_decode': True}\n",
        }
    )
    found = read_declaration("decl_fwd", "Model").capabilities
    assert found is not None
    assert found.supports_async_decode


def test_a_hook_hides_the_dict_of_its_class(tree) -> None:
    tree(
        {
            "decl_hook.py": "class Model:\n"
            "    model_capabilities = {'supports_async_decode': True}\n"
            "    @classmethod\n"
            "    def get_model_capabilities(cls):\n        return {}\n"
        }
    )
    found = read_declaration("decl_hook", "Model")
    assert found.undecided == ("get_model_capabilities",)
    assert found.capabilities is not None
    assert not found.capabilities.supports_async_decode


def test_a_computed_dict_and_a_spread_are_told(tree) -> None:
    tree(
        {
            "decl_dyn.py": "class A:\n    model_capabilities = make()\n"
            "class B(A):\n    model_capabilities = {**A.model_capabilities, KEY: 1, 'max_device_top_k': 4}\n"
        }
    )
    assert read_declaration("decl_dyn", "A").undecided == ("model_capabilities",)
    found = read_declaration("decl_dyn", "B")
    assert found.undecided == ("**A.model_capabilities", "KEY")
    assert found.capabilities is not None
    assert found.capabilities.max_device_top_k == 4


@pytest.mark.parametrize(
    ("source", "name", "note"),
    [
        ("class Model(:\n", "Model", "cannot read"),
        ("Model = 1\n", "Model", "does not define or import a class Model"),
        ("from .x import Model\n", "Model", "no package specified"),
        ("from decl_bad import Model\n", "Model", "gave up"),
        ("from nowhere_at_all import Model\n", "Model", "nowhere_at_all"),
        ("class Model(Model):\n    pass\n", "Model", ""),
        ("class Model:\n    model_capabilities = {'max_device_top_k': 'x'}\n", "Model", "max_device_top_k"),
        ("\0", "Model", "cannot read"),
    ],
)
def test_a_source_that_cannot_be_read_is_a_note_and_never_an_error(tree, source: str, name: str, note: str) -> None:
    tree({"decl_bad.py": source})
    found = read_declaration("decl_bad", name)
    assert note in found.note
    assert note == "" or found.capabilities is None


def test_a_base_that_cannot_be_followed_is_told(tree) -> None:
    tree({"decl_base.py": "import x\nfrom nowhere_at_all import Lost\nclass M(x.Y, Lost):\n    pass\n"})
    found = read_declaration("decl_base", "M")
    assert found.capabilities is not None
    assert "base class x.Y was not followed" in found.note
    assert "nowhere_at_all" in found.note


def test_a_module_that_is_missing_or_has_no_source_is_a_note() -> None:
    assert "nowhere_at_all" in read_declaration("nowhere_at_all", "M").note
    assert "has no Python source" in read_declaration("sys", "M").note


def test_a_changed_file_is_read_again(tree) -> None:
    root = tree({"decl_new.py": "class M:\n    decode_input_update_contract = 0\n"})
    assert read_declaration("decl_new", "M").capabilities is not None
    (root / "decl_new.py").write_text("class M:\n    decode_input_update_contract = 1\n\n")
    found = read_declaration("decl_new", "M").capabilities
    assert found is not None
    assert found.decode_input_update_contract == 1
