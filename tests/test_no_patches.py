"""Nothing of vLLM, torch or ttnn is changed at run time, and the environment is written in two documented places."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from surface.snapshot import load
from surface.uses import derive

from surface import __main__ as surface
from vllm_tt_plugin import compat

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("src/**/*.py")])
FOREIGN = {"vllm", "torch", "ttnn", "transformers"}
PATCHING = {"setattr", "delattr"}
ENVIRONMENT_WRITES = {
    "tt_platform/vllm/activate.py: pin_v1_runner",
    "tt_platform/vllm/ranks.py: bind_rank",
}
"""The V1 pin, vLLM's only switch for its model runner; and the chips of a rank, which ttnn reads once."""


def root_of(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def foreign_names(tree: ast.AST) -> set[str]:
    """Local names of foreign modules, classes and functions."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FOREIGN:
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname or a.name.partition(".")[0] for a in node.names if a.name.partition(".")[0] in FOREIGN}
    return names


def written(tree: ast.AST) -> Iterator[ast.expr]:
    """Everything that is assigned to, deleted, or given to setattr."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                yield from targets
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                yield target
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in PATCHING:
                yield ast.Attribute(first, "?", ast.Store())
            case _:
                pass


def patches(source: str) -> list[str]:
    """Assignments into foreign modules and classes: by an imported name, or through the class of an object."""
    tree = ast.parse(source)
    foreign = foreign_names(tree)
    found: list[str] = []
    for target in written(tree):
        if not isinstance(target, ast.Attribute | ast.Subscript):
            continue
        root = root_of(target)
        by_name = isinstance(root, ast.Name) and root.id in foreign
        by_class = isinstance(root, ast.Call) and isinstance(root.func, ast.Name) and root.func.id in ("type", "vars")
        through = any(isinstance(each, ast.Attribute) and each.attr == "__class__" for each in ast.walk(target))
        modules = ast.unparse(target).startswith("sys.modules[")
        if by_name or by_class or through or modules:
            found.append(ast.unparse(target))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_source_assigns_into_a_foreign_module_or_class(path: Path) -> None:
    assert patches(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "Scheduler.schedule = mine",
        "sched.Scheduler.schedule = mine",
        "setattr(Scheduler, 'schedule', mine)",
        "del Scheduler.schedule",
        "sched.LIMITS['rows'] = 3",
        "type(thing).schedule = mine",
        "thing.__class__.schedule = mine",
        "thing.__class__ = Mine",
        "sys.modules[NAME] = mine",
        "Scheduler.count += 1",
    ],
)
def test_a_patch_is_seen(line: str) -> None:
    """Fails when the search becomes blind."""
    head = "import sys\nfrom vllm.v1.core import sched\nfrom vllm.v1.core.sched.scheduler import Scheduler\n"
    assert patches(head + line) != []


def test_a_subclass_and_an_object_of_our_own_are_no_patches() -> None:
    assert patches("from vllm.x import Y\nclass Z(Y):\n    n = 1\nz = Z()\nz.n = 2\nsetattr(z, 'n', 3)\n") == []


def test_no_method_of_an_object_of_vllm_is_replaced() -> None:
    """Our adapters write attributes of vLLM's objects (limits, configuration); none of them is a function."""
    symbols = load(surface.snapshot_file(compat.load().versions[0])).symbols
    uses = [use for use in derive(ROOT) if use.how == "write"]
    assert uses
    assert [use for use in uses if str(symbols[use.symbol]).startswith("(")] == []


def environment_writes(source: str) -> Iterator[str]:
    """Names of the functions that write a mapping named environ, or call os.putenv and its like."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr="update" | "setdefault" | "pop" | "clear")):
                    if ast.unparse(owner) in ("environ", "os.environ"):
                        yield function.name
                case ast.Call(func=ast.Attribute(attr="putenv" | "unsetenv")):
                    yield function.name
                case _:
                    pass
        for target in written(function):
            if isinstance(target, ast.Subscript | ast.Name) and ast.unparse(root_or_name(target)).endswith("environ"):
                is_plain = isinstance(target, ast.Name) and target.id == "environ"
                if not is_plain:
                    yield function.name


def root_or_name(target: ast.expr) -> ast.expr:
    return target.value if isinstance(target, ast.Subscript) else target


def test_the_environment_is_written_in_two_documented_places() -> None:
    found = {
        f"{path.as_posix().rpartition('/src/')[2]}: {name}"
        for path in SOURCES
        for name in environment_writes(path.read_text())
    }
    assert found == ENVIRONMENT_WRITES


@pytest.mark.parametrize(
    "line", ["os.environ['A'] = 'b'", "environ.setdefault('A', 'b')", "del os.environ['A']", "os.putenv('A', 'b')"]
)
def test_a_write_to_the_environment_is_seen(line: str) -> None:
    assert list(environment_writes(f"def f(environ):\n    {line}\n")) == ["f"]


def test_the_places_say_so() -> None:
    for place in ENVIRONMENT_WRITES:
        file, function = place.split(": ")
        (path,) = ROOT.glob(f"packages/*/src/{file}")
        (node,) = (n for n in ast.walk(ast.parse(path.read_text())) if getattr(n, "name", "") == function)
        assert isinstance(node, ast.FunctionDef)
        assert "environment" in (ast.get_docstring(node) or "")
