"""``python -m release --check``: build every wheel and look at its contents, pins, notes and interface.

Exit code 1: something is wrong; 2: it could not be looked at. Nothing is tagged, written or sent anywhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from release import history, interface, notes, pins, wheel  # noqa: E402
from release.workspace import Package, packages  # noqa: E402
from vllm_tt_plugin.install_vllm import InstallError, find_uv  # noqa: E402


def check(root: Path, wheels: dict[str, wheel.Wheel]) -> Iterator[tuple[Package, str, list[str]]]:
    """Each package with what is said about it, and what is wrong with it."""
    waivers = interface.read_waivers(root)
    versions = {name: str(built.metadata["Version"]) for name, built in wheels.items()}
    for package in packages(root):
        built = wheels.get(package.name)
        if built is None:
            yield package, "not built", [f"no wheel was built for {package.name}"]
            continue
        problems = wheel.content_problems(package, built, history.source_files(package))
        problems += pins.pin_problems(package.name, built, versions)
        tag = history.last_tag(package)
        changed = history.changed_files(package, tag) if tag else []
        problems += notes.note_problems(package, tag, changed)
        if tag is None:
            yield package, "no tag yet: there is no interface to compare with", problems
            continue
        broken = interface.breaking(package, tag)
        problems += interface.interface_problems(package, tag, broken, waivers)
        if changed and package.tag == tag:
            problems.append(f"{len(changed)} files changed since {tag}: it needs a version of its own")
        yield package, f"since {tag}: {len(changed)} files changed, {len(broken)} breaking changes", problems


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="nox -s release --", description=__doc__)
    parser.add_argument("--check", action="store_true", required=True, help="the one thing that it does")
    parser.parse_args(arguments)
    wrong = 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            wheels = wheel.build(root, find_uv(sys.executable), Path(folder))
        for package, said, problems in check(root, wheels):
            problems += [f"not committed: {line}" for line in history.uncommitted(package)]
            print(f"{package.name} {package.version}: {said}")
            for problem in problems:
                print(f"    WRONG  {problem}")
            wrong += len(problems)
            if notes.fragments(package) and not problems:
                print("".join(f"    {line}\n" for line in notes.draft(package).splitlines() if line.strip()), end="")
    except (wheel.BuildError, history.GitError, InstallError, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    print(f"{wrong} problems" if wrong else "Nothing is wrong.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
