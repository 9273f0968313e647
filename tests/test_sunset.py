"""Probes of vLLM releases, all in files named _compat.py: each is needed by some row of the matrix, or must go.

What a release has is read from the snapshots in tests/surface, so a row that leaves compat.toml takes its probes along.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from surface.snapshot import load
from surface.uses import Use, derive

from surface import __main__ as surface
from vllm_tt_plugin import compat

ROOT = Path(__file__).parents[1]
ROWS = compat.load().versions
USES = derive(ROOT)
PROBES = [use for use in USES if use.how in ("optional", "choice")]
HELD = {version: load(surface.snapshot_file(version)).symbols for version in ROWS}

# Parts of _compat.py that ask no release for a name, and why they stay.
KEPT = {
    "tt_scheduler.CAN_DEFER_RUNNING": "true in every row; a release where it is not is refused at launch",
    "tt_scheduler._WAITING_QUEUES": "the names that count_admissible asks for",
    "tt_scheduler.count_running": "used by the probes beside it",
    "tt_scheduler.tokens_in_flight_end": "repeats a condition of vLLM's, the same in every row",
    "tt_registry.registered_target": "two kinds of entries of one release, both private",
    "tt_platform.prompt_parts": "forms of a prompt in one release",
    "tt_platform.request_error": "the class of the error has moved in its hierarchy, not its name",
    "tt_sampling.thinking_budget": "one parameter more since 0.26; 0.25.1 is the oldest row",
    "tt_worker.output_of_admission": "two forms of hand-over, chosen by the model runner, in one release",
}


@dataclass(frozen=True)
class Part:
    """A function, constant or fallback import of a _compat.py; the names it asks a release for, and all it uses."""

    name: str
    probes: tuple[str, ...]
    uses: tuple[str, ...]


def parts() -> list[Part]:
    found: list[Part] = []
    for path in sorted(ROOT.glob("packages/*/src/*/vllm/_compat.py")):
        file, package = str(path.relative_to(ROOT)), path.parents[1].name
        for node in ast.parse(path.read_text()).body:
            name = named(node)
            if name is not None:
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                used = [use for use in USES if use.file == file and use.line in lines]
                asked = {use.symbol for use in used if use in PROBES}
                found.append(Part(f"{package}.{name}", tuple(asked), tuple({use.symbol for use in used})))
    return found


def named(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
            return name if name != "__all__" else None
        case ast.Try(body=[ast.ImportFrom(names=[alias, *_])]):
            return alias.name
        case _:
            return None


def unneeded(part: Part, rows: Sequence[str]) -> list[str]:
    """What to delete when these are the rows: names that none has, and the whole part when no two rows differ.

    Rows differ when one has a name that another lacks, or has it with another type.
    """
    held = {symbol: [HELD[version].get(symbol) for version in rows] for symbol in (*part.probes, *part.uses)}
    gone = [f"no row has {symbol}: delete it from {part.name}" for symbol in part.probes if not any(held[symbol])]
    if all(value == answers[0] for answers in held.values() for value in answers):
        gone.append(f"every row gives {part.name} the same answer: replace it by that answer")
    return gone


PARTS = parts()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_probe_is_needed_by_a_row_of_the_matrix(part: Part) -> None:
    if part.name not in KEPT:
        assert unneeded(part, ROWS) == []


def test_what_is_kept_for_another_reason_is_there() -> None:
    assert sorted(KEPT.keys() - {part.name for part in PARTS}) == []


def test_with_the_newest_row_alone_every_probe_is_to_be_deleted() -> None:
    """Fails when this file stops seeing them."""
    probes = [part for part in PARTS if part.name not in KEPT]
    assert {part.name for part in probes} >= {
        "tt_scheduler.admission_limit",
        "tt_scheduler.count_admissible",
        "tt_scheduler.divide_rows",
        "tt_platform.v2_forcing_feature",
        "tt_worker.block_copies",
    }
    assert [part.name for part in probes if not unneeded(part, ROWS[:1])] == []


def test_without_the_rows_before_0_31_the_old_names_of_the_scheduler_are_to_be_deleted() -> None:
    (admissible,) = (part for part in PARTS if part.name == "tt_scheduler.count_admissible")
    rows = [version for version in ROWS if compat.numbers(version) >= (0, 31)]
    assert any("no row has" in line and "skipped_waiting" in line for line in unneeded(admissible, rows))


def differing(use: Use) -> bool:
    has = [HELD[version].get(use.symbol) is not None for version in ROWS]
    return any(has) and not all(has)


def test_no_release_is_probed_outside_a_compat_file() -> None:
    outside = [use for use in PROBES if use.how == "optional" and not use.file.endswith("/_compat.py")]
    assert [f"{use.file}:{use.line}: {use.symbol}" for use in outside if differing(use)] == []


def test_no_version_is_compared_in_the_sources() -> None:
    """Only the matrix knows release numbers; probes ask for names."""
    sources = sorted([*ROOT.glob("packages/*/src/**/*.py")])
    telling = ("__version_tuple__", 'version("vllm")', "vllm.__version__", "vllm.version")
    assert [str(path) for path in sources if any(text in path.read_text() for text in telling)] == []
