"""Every family of models, every feature: a real engine on the strict software mesh. docs/families.md is what they find.

The batch of twelve with preemption is part of every run of the tests; the rest of the table is `long`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parent))

import table
from family import FEATURES, Cell, Family, NotApplicable, Refused, Works, families
from features import CHECKS, RUN_OF, RUNS, run_named
from launch import Run
from served import DEVICE, Launcher

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

FAMILIES = families()
MIXED = "preempt/resume"


IN_ORDER = sorted(set(FEATURES) - {MIXED}, key=lambda feature: (RUNS.index(RUN_OF.get(feature, RUNS[0])), feature))
"""Features of one run follow each other: they share an engine."""
REST = [(name, feature) for name in FAMILIES for feature in IN_ORDER]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path_factory.mktemp)
    yield launcher
    launcher.stop()


@pytest.fixture
def found() -> Callable[[Family, str], None]:
    """found(family, feature): the cell is as it says. Kept when the table is being written."""

    def keep(family: Family, feature: str) -> None:
        if folder := os.environ.get(table.WRITE_TO):
            table.keep(Path(folder), family.name, family.label, FEATURES, feature, outcome(family.cell(feature)))

    return keep


def outcome(cell: Cell) -> dict[str, str]:
    """What the table says of a cell."""
    if isinstance(cell, Refused):
        word = "off" if cell.how == "turned off" else "refused"
        return {"outcome": word, "note": f"rule `{cell.rule}`: {cell.says}"}
    if isinstance(cell, NotApplicable):
        return {"outcome": "n/a", "note": cell.why}
    return {"outcome": "pass"}


def check(launcher: Launcher, family: Family, feature: str, folder: Path) -> None:
    if why := family.unserved():
        pytest.skip(why)
    cell = family.cell(feature)
    if isinstance(cell, Refused):
        check_refused(launcher, family, feature, cell)
    elif isinstance(cell, Works):
        name = RUN_OF.get(feature, RUNS[0])
        run = run_named(name, family, folder)
        if cell.run is not None:
            name, run = feature, cell.run
        served = launcher.served(family, name, run)
        if cell.check is None:
            CHECKS[feature](served)
        else:
            cell.check(served)


def check_refused(launcher: Launcher, family: Family, feature: str, refused: Refused) -> None:
    """A launch or a request fails with the rule's words; or the rule logs them, and the requests are exact without."""
    run = refused.run.over(DEVICE)
    if refused.how == "launch":
        with pytest.raises(ValueError, match=refused.says):
            launcher.launch(family, run)
        return
    served = launcher.served(family, RUNS[0] if refused.run == Run() else feature, run)
    if refused.how == "request":
        assert refused.request is not None, "a refused request has to be given"
        with pytest.raises(request_error(), match=refused.says):
            served.generate([refused.request])
    else:
        assert any(refused.says in message for message in served.messages)
    assert served.batch


def request_error() -> type[Exception]:
    """What becomes HTTP 400. No ValueError since 0.33."""
    from vllm.exceptions import VLLMValidationError

    return VLLMValidationError


@pytest.mark.parametrize("name", FAMILIES)
def test_families_twelve_mixed_requests_are_exact_under_preemption(
    launcher: Launcher, found: Callable[[Family, str], None], name: str, tmp_path: Path
) -> None:
    check(launcher, FAMILIES[name], MIXED, tmp_path)
    found(FAMILIES[name], MIXED)


@pytest.mark.long
@pytest.mark.parametrize(("name", "feature"), REST, ids=[f"{name}-{feature}" for name, feature in REST])
def test_families_a_feature_works_or_is_refused(
    launcher: Launcher, found: Callable[[Family, str], None], name: str, feature: str, tmp_path: Path
) -> None:
    check(launcher, FAMILIES[name], feature, tmp_path)
    found(FAMILIES[name], feature)


@pytest.mark.default_row
@pytest.mark.skipif(table.WRITE_TO in os.environ, reason="the page is being written")
def test_families_the_page_is_what_the_tests_found() -> None:
    """Nothing is untested, and nothing is said that the tests do not say. `python tests/families/table.py --write`."""
    results = table.found()
    said = {name: {feature: outcome(family.cell(feature)) for feature in FEATURES} for name, family in FAMILIES.items()}
    assert {name: result["cells"] for name, result in results.items()} == said
    assert table.PAGE.read_text() == table.page(results)
