"""What `nox -s release -- --check` looks at, each made to fail on purpose in a small workspace with a history."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from release import __main__ as release
from release import history, interface, notes, pins, wheel
from release.interface import Waiver
from release.workspace import META, Package, packages

ROOT = Path(__file__).parents[1]
PROJECT = """
[project]
name = "{name}"
version = "{version}"
dependencies = [{dependencies}]
[project.entry-points.tools]
run = "{module}:run"
"""
SOURCE = '''
"""One function."""
def run(lane: int, steps: int = 1) -> int:
    return lane * steps
'''
TAG = "tt-part-v0.1.0"


class Workspace:
    """A repository with the package tt-part and the meta-package, released once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("packages/tt-part/pyproject.toml", self.project("tt-part", "0.1.0"))
        self.write("packages/tt-part/CHANGELOG.md", f"# Changelog\n\n{notes.MARKER}\n\n## 0.1.0\n")
        self.write("packages/tt-part/src/tt_part/__init__.py", SOURCE)
        self.write("packages/tt-part/src/tt_part/py.typed", "")
        self.write("packages/tt-part/src/tt_part/vllm/__init__.py", "def hook(a, b): ...\n")
        self.write("pyproject.toml", self.project(META, "0.1.0", '"tt-part==0.1.0"'))
        self.write("src/vllm_tt_plugin/__init__.py", "")
        self.git("init", "-q")
        self.commit()
        self.git("tag", TAG)

    @staticmethod
    def project(name: str, version: str, dependencies: str = "") -> str:
        module = name.replace("-", "_")
        return PROJECT.format(name=name, version=version, dependencies=dependencies, module=module)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def source(self, text: str) -> None:
        self.write("packages/tt-part/src/tt_part/__init__.py", text)

    def git(self, *arguments: str) -> None:
        author = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(self.root), *author, *arguments], check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")

    @property
    def part(self) -> Package:
        return packages(self.root)[0]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


# Wheels


def pack(folder: Path, files: dict[str, str], requires: tuple[str, ...] = (), name: str = "tt-part") -> wheel.Wheel:
    """A wheel made by hand."""
    info = f"{name.replace('-', '_')}-0.1.0.dist-info"
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        "Version: 0.1.0",
        *(f"Requires-Dist: {each}" for each in requires),
    ]
    inside = {
        **files,
        f"{info}/METADATA": "\n".join(lines) + "\n\nWhat it is.\n",
        f"{info}/licenses/LICENSE": "Apache",
        f"{info}/entry_points.txt": f"[tools]\nrun = {name.replace('-', '_')}:run\n",
    }
    path = folder / f"{name.replace('-', '_')}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in inside.items():
            archive.writestr(file, text)
    return wheel.read(path)


FILES = {"tt_part/__init__.py": "", "tt_part/py.typed": ""}


def test_a_wheel_that_is_its_sources_has_no_problem(workspace: Workspace, tmp_path: Path) -> None:
    assert wheel.content_problems(workspace.part, pack(tmp_path, FILES), list(FILES)) == []
    workspace.write(".gitignore", "*.pyc\n")
    workspace.write("packages/tt-part/src/tt_part/a.pyc", "")
    assert set(history.source_files(workspace.part)) == {*FILES, "tt_part/vllm/__init__.py"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tt_part/__init__.py": ""}, "py.typed is missing"),
        ({"tt_part/py.typed": ""}, "tt_part/__init__.py is not in the wheel"),
        ({**FILES, "tests/test_a.py": ""}, "tests/test_a.py is in the wheel and not in the sources"),
        ({**FILES, "tt_part/__pycache__/a.pyc": ""}, "a.pyc is in the wheel"),
    ],
)
def test_a_wheel_with_other_contents_fails(
    workspace: Workspace, tmp_path: Path, files: dict[str, str], said: str
) -> None:
    assert any(
        said in problem for problem in wheel.content_problems(workspace.part, pack(tmp_path, files), list(FILES))
    )


def test_a_wheel_of_another_name_version_licence_or_entry_point_fails(workspace: Workspace, tmp_path: Path) -> None:
    good = pack(tmp_path, FILES)
    assert wheel.content_problems(workspace.part, replace(good, licensed=False), list(FILES)) == [
        "the text of the licence is missing: LICENSE belongs beside pyproject.toml"
    ]
    (lost,) = wheel.content_problems(workspace.part, replace(good, entry_points={}), list(FILES))
    assert "entry points are {}, pyproject says" in lost
    workspace.write("packages/tt-part/pyproject.toml", workspace.project("tt-part", "0.2.0"))
    assert wheel.content_problems(workspace.part, good, list(FILES)) == ["Version is 0.1.0, pyproject says 0.2.0"]


# Pins

VERSIONS = {"tt-part": "0.1.0", "tt-other": "0.1.0", META: "0.1.0"}


@pytest.mark.parametrize(
    ("name", "requires", "said"),
    [
        ("tt-part", ("tt-other>=0.2,<0.3",), "which the built 0.1.0 does not satisfy"),
        ("tt-part", ("tt-other>=0.1",), "a range without an upper end"),
        ("tt-part", ("vllm>=0.25",), "an environment's own vllm could be replaced"),
        ("tt-part", ("torch",), "an environment's own torch could be replaced"),
        ("tt-part", ("numpy==2.0",), "an environment's own numpy could be replaced"),
        (META, ("tt-part==0.1.0",), "does not pin tt-other"),
        (META, ("tt-part==0.1.0", "tt-other>=0.1,<0.2"), "the meta-package pins the exact version"),
        (META, ("tt-part==0.1.1", "tt-other==0.1.0"), "which the built 0.1.0 does not satisfy"),
    ],
)
def test_a_wrong_pin_fails(tmp_path: Path, name: str, requires: tuple[str, ...], said: str) -> None:
    (problem,) = pins.pin_problems(name, pack(tmp_path, FILES, requires, name), VERSIONS)
    assert said in problem


def test_right_pins_have_no_problem(tmp_path: Path) -> None:
    part = pack(tmp_path, FILES, ("tt-other>=0.1,<0.2", "numpy>=1.26", 'vllm>=0.25; extra == "vllm"'))
    assert pins.pin_problems("tt-part", part, VERSIONS) == []
    meta = pack(tmp_path, FILES, ("tt-part==0.1.0", 'tt-other[torch]==0.1.0; extra == "host"'), META)
    assert pins.pin_problems(META, meta, VERSIONS) == []


# Tags and notes


def test_the_last_tag_is_the_highest_of_this_package_on_the_way_to_head(workspace: Workspace) -> None:
    assert history.last_tag(workspace.part) == TAG
    for tag in ("tt-part-v0.10.0", "tt-part-v0.9.0", "tt-part-v1", "tt-part-extra-v2.0.0", f"{META}-v3.0.0"):
        workspace.git("tag", tag)
    assert history.last_tag(workspace.part) == "tt-part-v0.10.0"
    workspace.git("checkout", "-q", "-b", "aside")
    workspace.source("")
    workspace.commit()
    workspace.git("tag", "tt-part-v0.11.0")
    workspace.git("checkout", "-q", "-")
    assert history.last_tag(workspace.part) == "tt-part-v0.10.0"


def test_without_a_tag_something_must_be_written_about_the_first_release(workspace: Workspace) -> None:
    assert notes.note_problems(workspace.part, None, []) == ["nothing is written about the first release"]
    workspace.write("packages/tt-part/changes/+first.added.md", "It is there.")
    assert notes.note_problems(workspace.part, None, []) == []


def test_a_change_since_the_tag_needs_a_fragment(workspace: Workspace) -> None:
    assert history.changed_files(workspace.part, TAG) == []
    workspace.source(SOURCE + "\nMORE = 1\n")
    changed = history.changed_files(workspace.part, TAG)
    assert changed == ["packages/tt-part/src/tt_part/__init__.py"]
    (problem,) = notes.note_problems(workspace.part, TAG, changed)
    assert "changes/ is empty" in problem
    workspace.write("packages/tt-part/changes/12.changed.md", "There is MORE.")
    assert notes.note_problems(workspace.part, TAG, changed) == []


@pytest.mark.parametrize("name", ["what.added.md", "+what.new.md", "+what.added.txt", "+.fixed.md"])
def test_a_fragment_of_another_name_is_refused(workspace: Workspace, name: str) -> None:
    workspace.write(f"packages/tt-part/changes/{name}", "Words.")
    assert any(f"changes/{name}: allowed is" in each for each in notes.note_problems(workspace.part, TAG, []))


def test_an_empty_fragment_and_a_changelog_without_its_place_are_refused(workspace: Workspace) -> None:
    workspace.write("packages/tt-part/changes/+a.fixed.md", "\n")
    workspace.write("packages/tt-part/CHANGELOG.md", "# Changelog\n\n## Unreleased\n")
    empty, place, unreleased = notes.note_problems(workspace.part, TAG, [])
    assert empty == "changes/+a.fixed.md is empty"
    assert notes.MARKER in place
    assert f"still says Unreleased after {TAG}" in unreleased


def test_every_fragment_of_this_repository_is_taken_by_towncrier() -> None:
    for package in packages(ROOT):
        assert notes.note_problems(package, history.last_tag(package), []) == []
        texts = [path.read_text().strip().splitlines()[0] for path in notes.fragments(package)]
        if texts:
            said = notes.draft(package)
            assert all(text in said for text in texts)


def test_what_is_not_committed_is_told(workspace: Workspace) -> None:
    assert history.uncommitted(workspace.part) == []
    workspace.write("packages/tt-part/src/tt_part/new.py", "")
    assert history.uncommitted(workspace.part) == ["?? packages/tt-part/src/tt_part/new.py"]


# The interface


def broken(workspace: Workspace, source: str) -> list[str]:
    workspace.source(source)
    return interface.breaking(workspace.part, TAG)


def test_what_only_adds_breaks_nothing(workspace: Workspace) -> None:
    assert broken(workspace, SOURCE.replace("steps: int = 1", "steps: int = 1, more: int = 0") + "\nNEW = 1\n") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.replace("def run", "def go"), "tt_part.run: public object was removed"),
        (lambda s: s.replace("lane: int, ", ""), "tt_part.run: parameter was removed (lane)"),
        (lambda s: s.replace("steps: int = 1", "steps: int"), "tt_part.run: parameter is now required (steps)"),
    ],
)
def test_a_breaking_change_fails_until_it_is_waived_and_the_version_tells(
    workspace: Workspace, change: Callable[[str], str], said: str
) -> None:
    changes = broken(workspace, change(SOURCE))
    assert said in changes
    waivers = [Waiver(TAG, each, "meant") for each in changes]
    assert interface.interface_problems(workspace.part, TAG, changes, waivers) == [
        f"0.1.0 is of the series of {TAG}, which it breaks: raise the second number"
    ]
    workspace.write("packages/tt-part/pyproject.toml", workspace.project("tt-part", "0.2.0"))
    assert interface.interface_problems(workspace.part, TAG, changes, waivers) == []
    assert f"{said} (not in" in "".join(interface.interface_problems(workspace.part, TAG, changes, waivers[1:]))


def test_a_waiver_for_nothing_or_for_another_tag_is_not_taken(workspace: Workspace) -> None:
    stale = Waiver(TAG, "tt_part.run: public object was removed", "meant")
    (problem,) = interface.interface_problems(workspace.part, TAG, [], [stale])
    assert "waives what does not happen" in problem
    other = replace(stale, since="tt-part-v0.0.9")
    assert interface.interface_problems(workspace.part, TAG, [], [other]) == []


def test_an_adapter_has_no_promise(workspace: Workspace) -> None:
    workspace.write("packages/tt-part/src/tt_part/vllm/__init__.py", "def hook(b): ...\n")
    assert interface.breaking(workspace.part, TAG) == []


@pytest.mark.parametrize("entry", ['since = "a"\nchange = "b"\n', 'since = "a"\nchange = "b"\nreason = " "\n'])
def test_a_waiver_gives_its_reason(tmp_path: Path, entry: str) -> None:
    (tmp_path / "tools" / "release").mkdir(parents=True)
    (tmp_path / "tools" / "release" / "waivers.toml").write_text(f"[[waiver]]\n{entry}")
    with pytest.raises(ValueError, match="a waiver has since, change and reason"):
        interface.read_waivers(tmp_path)


@pytest.mark.parametrize(("version", "kept"), [("0.1.7", (0, 1)), ("0.12.0", (0, 12)), ("1.4.2", (1,))])
def test_a_series_is_what_stays_while_nothing_breaks(version: str, kept: tuple[int, ...]) -> None:
    assert interface.series(version) == kept


# All of it


def test_every_look_is_taken_at_every_package(workspace: Workspace, tmp_path: Path) -> None:
    workspace.source(SOURCE.replace("lane: int, ", ""))
    wheels = {"tt-part": pack(tmp_path, {"tt_part/__init__.py": ""}, ("torch",))}
    (part, said, problems), (meta, _, unbuilt) = release.check(workspace.root, wheels)
    assert (part.name, said) == ("tt-part", f"since {TAG}: 1 files changed, 2 breaking changes")
    looks = [
        "py.typed",
        "torch could be replaced",
        "changes/ is empty",
        "parameter was removed",
        "a version of its own",
    ]
    assert all(any(look in problem for problem in problems) for look in looks)
    assert (meta.name, unbuilt) == (META, ["no wheel was built for vllm-tt-plugin"])


def test_before_the_first_tag_it_says_so(workspace: Workspace, tmp_path: Path) -> None:
    workspace.git("tag", "-d", TAG)
    (_, said, _), _ = release.check(workspace.root, {"tt-part": pack(tmp_path, FILES)})
    assert said == "no tag yet: there is no interface to compare with"


# This repository


def test_the_tags_are_one_for_each_package_and_version() -> None:
    tags = [package.tag for package in packages(ROOT)]
    assert tags[-1].startswith(f"{META}-v")
    assert len(set(tags)) == len(tags)


def test_the_waivers_of_this_repository_can_be_read() -> None:
    assert all(waiver.reason for waiver in interface.read_waivers(ROOT))


@pytest.mark.slow
def test_every_package_of_this_repository_loads_as_an_interface() -> None:
    """griffe reads each source tree; compared with itself nothing breaks."""
    import griffe

    for package in packages(ROOT):
        folder = str((package.root / package.sources).parent)
        now = griffe.load(package.module, search_paths=[folder], allow_inspection=False, resolve_aliases=True)
        assert list(griffe.find_breaking_changes(now, now)) == []


def test_the_command_says_what_it_does(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run([sys.executable, "-m", "release"], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    assert "--check" in done.stderr
