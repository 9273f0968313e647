"""EXTRA_MODELS_DIR."""

import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tt_registry import BundleError, Target, parse_metadata, scan_bundles
from tt_registry.bundles import read_bundles

GOOD = {"arch": "LlamaForCausalLM", "main_class": "bundle_one:Model"}


def bundle(root, folder: str, metadata: object, **files: str):
    path = root / folder
    path.mkdir(parents=True)
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    (path / "vllm_metadata.json").write_text(text)
    for name, source in files.items():
        (path / f"{name}.py").write_text(source)
    return path


def test_a_bundle_is_read(tmp_path, clean_imports) -> None:
    path = bundle(tmp_path, "my-model", {**GOOD, "version": 3}, bundle_one="raise SystemExit\n")
    before = list(sys.path)
    scan = scan_bundles(tmp_path)
    assert scan.skipped == ()
    (found,) = scan.bundles
    assert found.folder == path
    assert found.origin == "EXTRA_MODELS_DIR/my-model"
    assert found.metadata.architecture == "LlamaForCausalLM"
    assert found.metadata.target == Target("bundle_one", "Model")
    assert found.metadata.other == {"version": 3}
    assert sys.path == before


def test_the_tt_prefix_in_a_bundle_changes_nothing() -> None:
    assert parse_metadata(json.dumps({**GOOD, "arch": "TTLlamaForCausalLM"})) == parse_metadata(json.dumps(GOOD))


def test_optional_keys_are_typed_and_null_means_unsaid() -> None:
    full = parse_metadata(json.dumps({**GOOD, "data_parallel": "lanes", "multimodal": True, "moe": None}))
    assert (full.data_parallel, full.multimodal, full.moe, dict(full.other)) == ("lanes", True, None, {})


def test_a_byte_order_mark_does_no_harm() -> None:
    assert parse_metadata(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()) == parse_metadata(json.dumps(GOOD))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("1" * 5000, "JSON"),
        (b"\xff\xfe", "not valid JSON"),
        ("[]", "must hold a JSON object, not an array"),
        ("null", "must hold a JSON object, not null"),
        ('"x"', "must hold a JSON object, not a string"),
        ("{}", "no key 'arch'"),
        ({"arch": "A"}, "no key 'main_class'"),
        ({**GOOD, "arch": 1}, "'arch' must be a string, not a number"),
        ({**GOOD, "arch": "A-B"}, "'A-B', which is not an architecture name"),
        ({**GOOD, "arch": ""}, "not an architecture name"),
        ({**GOOD, "main_class": ["m:C"]}, "'main_class' must be a string, not an array"),
        ({**GOOD, "main_class": "m.C"}, "'main_class': 'm.C' has no ':'"),
        ({**GOOD, "data_parallel": "both"}, "'data_parallel' is 'both'"),
        ({**GOOD, "data_parallel": []}, "'data_parallel' is []"),
        ({**GOOD, "multimodal": 1}, "'multimodal' must be true or false, not a number"),
        ({**GOOD, "moe": {}}, "'moe' must be true or false, not an object"),
    ],
)
def test_broken_metadata_says_why(text: object, why: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse_metadata(text if isinstance(text, (str, bytes)) else json.dumps(text))
    assert why in str(caught.value)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["a:B", "lanes"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["arch", "main_class", "data_parallel", "multimodal", "moe"]) | st.text(max_size=5)


@given(st.one_of(st.text(), st.binary(), st.dictionaries(KEYS, JSON_VALUES).map(json.dumps)))
@example('{"arch": "A", "main_class": "a:B"}')
def test_parsing_is_total(text: str | bytes) -> None:
    """A value or a BundleError, never another exception."""
    try:
        metadata = parse_metadata(text)
    except BundleError:
        return
    assert metadata.architecture.isidentifier()


def test_broken_bundles_are_skipped_each_with_its_reason_and_the_rest_is_served(tmp_path, clean_imports) -> None:
    bundle(tmp_path, "a-broken", "{")
    (tmp_path / "b-empty").mkdir()
    bundle(tmp_path, "c-good", GOOD, bundle_one="")
    bundle(tmp_path, "d-no-module", {"arch": "A", "main_class": "not_here_at_all:B"})
    bundle(tmp_path, ".git", "{")
    bundle(tmp_path, "__pycache__", "{")
    (tmp_path / "notes.txt").write_text("not a folder")
    scan = scan_bundles(tmp_path)
    assert [b.folder.name for b in scan.bundles] == ["c-good"]
    reasons = {s.folder.name: s.why for s in scan.skipped}
    assert set(reasons) == {"a-broken", "b-empty", "d-no-module"}
    assert "not valid JSON" in reasons["a-broken"]
    assert "cannot read vllm_metadata.json" in reasons["b-empty"]
    assert "module 'not_here_at_all' is not on PYTHONPATH, nor in the bundle's folder" in reasons["d-no-module"]
    assert str(scan.skipped[0]).startswith("Skipping EXTRA_MODELS_DIR bundle ")


def test_of_two_bundles_for_one_architecture_the_first_by_folder_name_is_used(tmp_path, clean_imports) -> None:
    bundle(tmp_path, "b", {**GOOD, "arch": "TTLlamaForCausalLM"}, bundle_one="")
    bundle(tmp_path, "a", {**GOOD, "main_class": "bundle_two:Model"}, bundle_two="")
    scan = scan_bundles(tmp_path)
    assert [b.folder.name for b in scan.bundles] == ["a"]
    assert "already served by bundle a" in scan.skipped[0].why


def test_a_bundle_never_shadows_an_installed_package_and_is_told_so(tmp_path, clean_imports) -> None:
    """json is everybody's; a bundle that brings its own json.py would be served by the wrong module."""
    bundle(tmp_path, "x", {"arch": "A", "main_class": "json:Model"}, json="class Model: pass\n")
    scan = scan_bundles(tmp_path)
    assert scan.bundles == ()
    assert "its module 'json' is hidden by" in scan.skipped[0].why
    assert str(json.__file__) in scan.skipped[0].why
    assert "rename" in scan.skipped[0].why


def test_a_package_of_the_bundle_that_an_installed_one_hides_is_told_too(tree, tmp_path) -> None:
    tree({"adapter_pkg/__init__.py": ""})
    path = tmp_path / "bundles" / "x"
    (path / "adapter_pkg").mkdir(parents=True)
    (path / "adapter_pkg" / "__init__.py").write_text("")
    (path / "adapter_pkg" / "model.py").write_text("")
    (path / "vllm_metadata.json").write_text(json.dumps({"arch": "A", "main_class": "adapter_pkg.model:M"}))
    assert "is hidden by" in scan_bundles(tmp_path / "bundles").skipped[0].why


def test_two_bundles_may_not_have_the_same_module_name(tmp_path, clean_imports) -> None:
    """The second would silently be served by the first's class."""
    bundle(tmp_path, "a", {"arch": "A", "main_class": "same_name:M"}, same_name="")
    bundle(tmp_path, "b", {"arch": "B", "main_class": "same_name:M"}, same_name="")
    scan = scan_bundles(tmp_path)
    assert [b.folder.name for b in scan.bundles] == ["a"]
    assert f"hidden by {tmp_path / 'a' / 'same_name.py'}" in scan.skipped[0].why


def test_a_bundle_may_point_at_an_installed_module(tree, tmp_path) -> None:
    tree({"models_x/gen.py": ""})
    bundle(tmp_path / "bundles", "pointer", {"arch": "A", "main_class": "models_x.gen:M"})
    assert len(scan_bundles(tmp_path / "bundles").bundles) == 1


def test_reading_again_after_the_folder_is_on_the_path_gives_the_same(tmp_path, clean_imports) -> None:
    path = bundle(tmp_path, "a", GOOD, bundle_one="")
    first = scan_bundles(tmp_path)
    sys.path.append(str(path))
    assert scan_bundles(tmp_path) == first


@pytest.mark.parametrize("make", ["missing", "file"])
def test_a_directory_that_is_none_is_one_skip_that_names_the_variable(tmp_path, make: str) -> None:
    root = tmp_path / make
    if make == "file":
        root.write_text("")
    scan = scan_bundles(root)
    assert scan.bundles == ()
    assert "EXTRA_MODELS_DIR must name a readable directory" in scan.skipped[0].why


def test_an_unreadable_metadata_file_is_a_skip(tmp_path, clean_imports) -> None:
    (tmp_path / "a" / "vllm_metadata.json").mkdir(parents=True)
    assert "cannot read vllm_metadata.json (Is a directory)" in scan_bundles(tmp_path).skipped[0].why


@pytest.mark.parametrize("environ", [{}, {"EXTRA_MODELS_DIR": ""}, {"EXTRA_MODELS_DIR": "  "}])
def test_no_variable_no_bundles(environ: dict[str, str]) -> None:
    assert read_bundles(environ).bundles == read_bundles(environ).skipped == ()
