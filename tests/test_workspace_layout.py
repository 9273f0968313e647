"""What every package has, and what no file may say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib
from release import notes

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
EVERY = [ROOT, *PACKAGES]
CORE_LINES = 400
"""Beyond this a file holds two nouns."""
UNWANTED = {
    "a package index host": r"\bpypi\.org|pythonhosted\.org|download\.pytorch\.org|test\.pypi|registry\.npmjs",
    "a path of one machine": r"(?<![\w.}-])/(?:root|work|tmp/lab|opt/wheels|opt/pypi|home/\w+)/",
}
ALLOWED = {"tests/test_workspace_layout.py"}


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def module(folder: Path) -> Path:
    return folder / "src" / project(folder)["project"]["name"].replace("-", "_")


def tracked() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git working tree")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("folder", EVERY, ids=lambda folder: folder.name)
def test_a_package_has_its_readme_changelog_licence_and_types(folder: Path) -> None:
    about = project(folder)["project"]
    assert about["license"] == "Apache-2.0"
    assert about["readme"] == "README.md"
    assert (folder / "README.md").read_text().startswith("# ")
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert notes.MARKER in (folder / "CHANGELOG.md").read_text()
    assert (module(folder) / "py.typed").exists()


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_has_tests(folder: Path) -> None:
    assert list((folder / "tests").rglob("test_*.py"))


def test_the_meta_package_pins_the_exact_versions_of_the_workspace() -> None:
    versions = {about["name"]: about["version"] for about in (project(folder)["project"] for folder in PACKAGES)}
    meta = project(ROOT)["project"]
    wanted = [*meta["dependencies"], *meta["optional-dependencies"]["host"]]
    pins = {re.split(r"[\[=]", each)[0]: each.split("==")[1] for each in wanted if each.startswith("tt-")}
    assert pins == versions


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_depends_on_the_others_by_the_range_of_their_present_version(folder: Path) -> None:
    versions = {about["name"]: about["version"] for about in (project(each)["project"] for each in PACKAGES)}
    for dependency in project(folder)["project"]["dependencies"]:
        name, _, spec = dependency.partition(">=")
        if name in versions:
            major, minor, _ = map(int, versions[name].split("."))
            assert spec == f"{major}.{minor},<{major}.{minor + 1}"


def test_every_package_is_a_workspace_source() -> None:
    sources = project(ROOT)["tool"]["uv"]["sources"]
    assert sorted(sources) == [folder.name for folder in PACKAGES]


def test_no_file_names_an_index_host_or_a_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        if str(path) in ALLOWED:
            continue
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
            found += [
                f"{path}:{number}: {what}: {line.strip()}"
                for what, pattern in UNWANTED.items()
                if re.search(pattern, line)
            ]
    assert found == []


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    names = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
    assert [str(path) for path in tracked() if path.name in names] == []


def test_no_source_file_has_grown_to_two_nouns() -> None:
    sources = [path for path in tracked() if path.suffix == ".py" and "src" in path.parts]
    assert [str(path) for path in sources if len((ROOT / path).read_text().splitlines()) > CORE_LINES] == []


def test_nothing_stands_in_for_ttnn_torch_or_vllm_in_sys_modules() -> None:
    """Blocking one (``= None``) is fine; a fake one answers what nobody asked it."""
    foreign = r"""["'](?:ttnn|torch|vllm)["'.]"""
    fakes = rf"sys\.modules\[{foreign}[^]]*\]\s*=(?!\s*None|=)|sys\.modules,\s*{foreign}(?!.*None)|MagicMock"
    sources = [path for path in tracked() if path.suffix == ".py" and str(path) not in ALLOWED]
    assert [str(path) for path in sources if re.search(fakes, (ROOT / path).read_text())] == []
