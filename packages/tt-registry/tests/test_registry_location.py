"""Finding a module without importing anything."""

import importlib
import sys

import pytest

from tt_registry.location import Location, Missing, locate, locate_in

BOOM = "raise SystemExit('this module must not be imported')\n"


def test_a_dotted_name_is_found_and_no_parent_is_imported(tree) -> None:
    root = tree({"boom_a/__init__.py": BOOM, "boom_a/b/__init__.py": BOOM, "boom_a/b/c.py": BOOM})
    found = locate("boom_a.b.c")
    assert isinstance(found, Location)
    assert found.file == str(root / "boom_a/b/c.py")
    assert not any(name.startswith("boom_a") for name in sys.modules)


def test_a_nested_namespace_package_is_found(tree) -> None:
    """Fails when the search asks PathFinder, which needs the parent of a namespace package imported."""
    root = tree({"space_a/deep/er/mod.py": BOOM})
    found = locate("space_a.deep.er.mod")
    assert isinstance(found, Location)
    assert found.file == str(root / "space_a/deep/er/mod.py")


def test_portions_of_a_namespace_package_add_up(tree, tmp_path) -> None:
    tree({"space_b/one.py": BOOM})
    late = tmp_path / "late"
    (late / "space_b").mkdir(parents=True)
    (late / "space_b" / "two.py").write_text(BOOM)
    assert isinstance(locate("space_b.two"), Missing)
    assert isinstance(locate("space_b.one", behind=[str(late)]), Location)
    assert isinstance(locate("space_b.two", behind=[str(late)]), Location)


def test_folders_behind_never_win_over_sys_path(tree, tmp_path) -> None:
    root = tree({"solid_a/__init__.py": ""})
    late = tmp_path / "late"
    (late / "solid_a").mkdir(parents=True)
    (late / "solid_a" / "__init__.py").write_text("")
    assert str(locate("solid_a", behind=[str(late)])) == str(root / "solid_a/__init__.py")
    assert locate_in("solid_a", str(late)) == Location(
        "solid_a", str(late / "solid_a/__init__.py"), (str(late / "solid_a"),)
    )


@pytest.mark.parametrize(
    ("module", "part", "says"),
    [
        ("nowhere_at_all", "nowhere_at_all", "module 'nowhere_at_all' is not on PYTHONPATH"),
        ("nowhere_at_all.x", "nowhere_at_all", "package 'nowhere_at_all' is not on PYTHONPATH"),
        ("half.there.x", "half.there", "module 'half.there' is not in"),
        ("half.leaf.x", "half.leaf.x", "leaf.py"),
        ("half.leaf.x.y.z", "half.leaf.x", "leaf.py"),
    ],
)
def test_what_is_missing_is_named_by_its_first_missing_part(tree, module: str, part: str, says: str) -> None:
    tree({"half/__init__.py": BOOM, "half/leaf.py": BOOM})
    found = locate(module)
    assert isinstance(found, Missing)
    assert found.part == part
    assert says in str(found)


def test_an_imported_package_is_asked_for_its_own_path(tree, tmp_path) -> None:
    tree({"moving/__init__.py": ""})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "part.py").write_text("")
    importlib.import_module("moving").__path__.append(str(elsewhere))
    assert isinstance(locate("moving.part"), Location)


def test_a_name_that_python_refuses_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "refused_name", None)
    assert isinstance(locate("refused_name"), Missing)
    assert isinstance(locate("refused_name.sub"), Missing)


def test_a_built_in_module_is_found_and_is_no_package() -> None:
    assert locate("sys") == Location("sys", None, ())
    assert isinstance(locate("sys.monitoring_"), Missing)


def test_finders_of_editable_installs_are_asked_for_nested_names(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree({"mapped/__init__.py": BOOM, "far/away.py": BOOM})

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "mapped.away":
                return importlib.util.spec_from_file_location(name, root / "far/away.py")
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert str(locate("mapped.away")) == str(root / "far/away.py")
