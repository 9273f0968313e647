"""The part of vLLM that we use: nothing is missing from the list, and what a new release does to it is told."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from surface.lookup import Release
from surface.releases import read_release
from surface.report import behind_a_question, compare
from surface.snapshot import OUTSIDE, Snapshot, dump, load, take
from surface.uses import Use, derive

from surface import __main__ as surface
from vllm_tt_plugin import compat

ROOT = Path(__file__).parents[1]
MATRIX = compat.load()
USES = derive(ROOT)
SYMBOLS = {use.symbol for use in USES}
ASKED = {use.symbol for use in USES if use.how in ("optional", "choice", "name", "override")}
MENTIONED = {symbol.rpartition(".")[2] for symbol in ASKED if ".__mentions__." in symbol}
"""Attributes that _compat.py looks for in the code of a method before they are used."""
AGAIN = "run `nox -s surface -- --write` and read what it prints"


def snapshot(version: str) -> Snapshot:
    return load(surface.snapshot_file(version))


@pytest.mark.parametrize("version", MATRIX.versions)
def test_every_row_has_a_snapshot_with_every_symbol_that_our_sources_use(version: str) -> None:
    held = snapshot(version)
    assert held.vllm == version
    assert sorted(SYMBOLS - held.symbols.keys()) == [], AGAIN


@pytest.mark.parametrize("version", MATRIX.versions)
def test_every_row_has_what_we_use_without_asking(version: str) -> None:
    held = snapshot(version)
    needed = {symbol for symbol in SYMBOLS - ASKED if not behind_a_question(symbol, ASKED)}
    needed = {symbol for symbol in needed if not MENTIONED & set(symbol.split("."))}
    assert [symbol for symbol in sorted(needed) if held.symbols[symbol] is None] == []


def test_few_paths_leave_vllm() -> None:
    """What is reached through a type that is not vLLM's cannot be watched: it should stay rare."""
    outside = [symbol for symbol, value in snapshot(MATRIX.versions[0]).symbols.items() if value == OUTSIDE]
    assert len(outside) < len(SYMBOLS) / 20, outside


@pytest.mark.parametrize(
    ("symbol", "how", "file"),
    [
        ("vllm.v1.core.sched.async_scheduler:AsyncScheduler.schedule", "override", "scheduler.py"),
        ("vllm.v1.core.sched.async_scheduler:AsyncScheduler.running[].is_prefill_chunk", "attribute", "passes.py"),
        ("vllm.v1.core.sched.scheduler:Scheduler.skipped_waiting", "choice", "_compat.py"),
        ("vllm.config:VllmConfig.scheduler_config.max_num_seqs", "attribute", "apply.py"),
        ("vllm.config:VllmConfig.shutdown_timeout", "write", "shutdown.py"),
        ("vllm.v1.sample.metadata:SamplingMetadata.top_k", "keyword", "reference.py"),
        ("vllm.v1.core.sched.output:SchedulerOutput.__fields__", "fields", "merge.py"),
        ("vllm.envs:VLLM_USE_V2_MODEL_RUNNER", "variable", "environment.py"),
        ("vllm.entrypoints.cli.main:", "module", "serving.py"),
    ],
)
def test_each_kind_of_use_is_found(symbol: str, how: str, file: str) -> None:
    assert any(use.symbol == symbol and use.how == how and use.file.endswith(file) for use in USES)


# A fake release

OURS = """
from vllm.engine import Engine, Options
from vllm.base import Worker

class Mine(Worker):
    def run(self, step): ...
    def own(self): ...

def start(options: Options, engines: list[Engine]):
    for engine in engines:
        engine.start(options.limits.rows)
        if hasattr(engine, "drain"):
            engine.drain()
"""
ENGINE = """
from dataclasses import dataclass
from vllm.limits import Limits

@dataclass
class Options:
    limits: Limits

class Engine:
    def start(self, rows: int = 1) -> None:
        '''Text that may change.'''
        return None
"""
THEIRS = {
    "vllm/__init__.py": "",
    "vllm/engine.py": ENGINE,
    "vllm/limits.py": "class Limits:\n    def __init__(self):\n        self.rows = 1\n",
    "vllm/base.py": "class Worker:\n    def run(self, step): return 1\n",
}


@pytest.fixture
def uses(tmp_path: Path) -> list[Use]:
    file = tmp_path / "packages/tt-x/src/tt_x/vllm/mine.py"
    file.parent.mkdir(parents=True)
    file.write_text(OURS)
    return derive(tmp_path)


def changes(uses: list[Use], **files: str) -> list[tuple[str, str, bool]]:
    """kind, symbol and whether it breaks, when these modules of vLLM are replaced."""
    after = {**THEIRS, **{f"vllm/{name}.py": text for name, text in files.items()}}
    found = compare(take("1.0.0", Release(THEIRS), uses), take("1.1.0", Release(after), uses), uses)
    return [(change.kind, change.symbol, change.breaks) for change in found]


def test_a_path_is_followed_through_annotations_and_loops(uses: list[Use]) -> None:
    symbols = take("1.0.0", Release(THEIRS), uses).symbols
    assert symbols["vllm.engine:Options.limits.rows"] == "attribute"
    assert symbols["vllm.engine:Engine.start"] == "(self, rows: int = 1) -> None"
    assert symbols["vllm.engine:Engine.drain"] is None


def test_the_same_sources_are_no_change_and_neither_is_a_docstring(uses: list[Use]) -> None:
    assert changes(uses) == []
    assert changes(uses, engine=ENGINE.replace("Text that may change", "Another text")) == []


def test_a_renamed_method_breaks(uses: list[Use]) -> None:
    assert changes(uses, engine=ENGINE.replace("def start", "def begin")) == [
        ("removed", "vllm.engine:Engine.start", True)
    ]


def test_a_renamed_attribute_of_an_instance_breaks(uses: list[Use]) -> None:
    limits = THEIRS["vllm/limits.py"].replace("self.rows", "self.lines")
    assert changes(uses, limits=limits) == [("removed", "vllm.engine:Options.limits.rows", True)]


def test_another_signature_is_a_change_for_a_reader(uses: list[Use]) -> None:
    assert changes(uses, engine=ENGINE.replace("rows: int = 1", "rows: int, wait: bool")) == [
        ("changed", "vllm.engine:Engine.start", False)
    ]


def test_another_body_of_a_method_that_we_override_is_told(uses: list[Use]) -> None:
    assert changes(uses, base=THEIRS["vllm/base.py"].replace("return 1", "return 2")) == [
        ("body", "vllm.base:Worker.run", False)
    ]


def test_a_method_that_vllm_gives_a_name_of_ours_is_told(uses: list[Use]) -> None:
    assert changes(uses, base=THEIRS["vllm/base.py"] + "    def own(self): ...\n") == [
        ("added", "vllm.base:Worker.own", False)
    ]


def test_a_new_abstract_method_breaks_unless_we_define_it(uses: list[Use]) -> None:
    head = "from abc import abstractmethod\n" + THEIRS["vllm/base.py"]
    unknown = changes(uses, base=head + "    @abstractmethod\n    def must(self): ...\n")
    assert unknown == [("added", "vllm.base:Worker.__abstract__.must", True)]
    known = changes(uses, base=head + "    @abstractmethod\n    def own(self): ...\n")
    assert ("added", "vllm.base:Worker.__abstract__.own", False) in known


def test_what_is_asked_for_may_come_and_go(uses: list[Use]) -> None:
    with_drain = ENGINE + "\n    def drain(self): ...\n"
    assert changes(uses, engine=with_drain) == [("added", "vllm.engine:Engine.drain", False)]


def test_a_folder_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no vllm package"):
        read_release(tmp_path)


# The real one

installed = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


def site_packages() -> Path:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


@installed
@pytest.mark.vllm
def test_the_snapshot_of_the_installed_release_is_what_its_files_say() -> None:
    version = (compat.installed_vllm() or "").partition("+")[0]
    if version not in MATRIX.versions:
        pytest.skip(f"vLLM {version} is not a row")
    assert dump(take(version, Release(read_release(site_packages())), USES)) == dump(snapshot(version)), AGAIN


@installed
@pytest.mark.vllm
@pytest.mark.default_row
def test_a_fake_next_release_with_one_method_renamed_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.33.0 under the name 0.34.0, where ModelConfig.get_total_num_kv_heads is called something else."""
    if (compat.installed_vllm() or "").partition("+")[0] != "0.33.0":
        pytest.skip("the fake is made from 0.33.0")
    release = Release(read_release(site_packages()))
    take("0.33.0", release, USES)
    for name in [name for name in release.files if release.was_read(name)]:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(release.files[name].replace("get_total_num_kv_heads", "count_kv_heads"), encoding="utf-8")
    assert surface.main(["0.34.0", "--source", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert told.startswith("vLLM 0.33.0 -> 0.34.0: of what we use 0 added, 1 removed, 0 changed, 0 body; 1 without")
    assert "ModelConfig.get_total_num_kv_heads  BREAKS" in told.replace("VllmConfig.model_config.", "ModelConfig.")
    assert "packages/tt-worker/src/tt_worker/vllm/kv_spec.py" in told
    assert surface.main(["0.34.0", "--source", str(tmp_path), "--json"]) == 1
    (change,) = json.loads(capsys.readouterr().out)
    assert change["kind"] == "removed"
