"""``python -m surface X.Y.Z [--source PATH]``: what a vLLM release changes in the part of vLLM that we use.

Takes the release's sources from an sdist (fetched once into the user's cache), a wheel or a folder, compares them with
the snapshot of the row before, and prints what was added, removed and changed and where we use it. ``--write`` commits
the snapshot to tests/surface. Exit code 1: something that we use without asking is gone. vLLM is not imported.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from surface.lookup import Release  # noqa: E402
from surface.releases import read_release  # noqa: E402
from surface.report import compare, summary  # noqa: E402
from surface.snapshot import Snapshot, dump, load, take  # noqa: E402
from surface.uses import Use, derive  # noqa: E402
from vllm_tt_plugin import compat, install_vllm  # noqa: E402
from vllm_tt_plugin.install_vllm import InstallError  # noqa: E402

FOLDER = ROOT / "tests" / "surface"


def snapshot_file(version: str) -> Path:
    return FOLDER / f"{version}.json"


def previous(version: str) -> str | None:
    """The newest committed snapshot that is older."""
    older = [path.stem for path in FOLDER.glob("*.json") if compat.numbers(path.stem) < compat.numbers(version)]
    return max(older, key=compat.numbers, default=None)


def source_of(version: str) -> Path:
    """The release's sdist in the cache, fetched when it is not there."""
    cached = install_vllm.sdist_file(install_vllm.cache_dir(), version)
    if cached.exists():
        return cached
    target = install_vllm.inspect(sys.executable, install_vllm.find_uv(sys.executable))
    return install_vllm.fetch_sdist(version, target, cached, run=install_vllm.announce_and_execute)


def snapshot_of(version: str, source: Path, uses: Sequence[Use]) -> Snapshot:
    return take(version, Release(read_release(source)), uses)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nox -s surface --", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="X.Y.Z", help="releases (default: all rows of compat.toml)")
    parser.add_argument("--source", type=Path, help="sdist, wheel or folder of the one release named")
    parser.add_argument("--against", metavar="X.Y.Z", help="compare with this snapshot (default: the one before)")
    parser.add_argument("--write", action="store_true", help="write the snapshot")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")
    options = parser.parse_args(arguments)
    versions = options.versions or list(reversed(compat.load().versions))
    if options.source is not None and len(versions) != 1:
        parser.error("--source: name the one release that it holds")
    uses = derive(ROOT)
    breaking = False
    try:
        for version in versions:
            after = snapshot_of(version, options.source or source_of(version), uses)
            if options.write:
                FOLDER.mkdir(exist_ok=True)
                snapshot_file(version).write_text(dump(after), encoding="utf-8")
            base = options.against or previous(version)
            if base is None:
                print(f"vLLM {version}: no snapshot of an older release to compare with")
                continue
            changes = compare(load(snapshot_file(base)), after, uses)
            breaking = breaking or any(change.breaks for change in changes)
            as_json = json.dumps([asdict(change) for change in changes], indent=1)
            print(as_json if options.json else summary(base, version, changes))
    except (InstallError, FileNotFoundError, ValueError) as error:
        print(f"surface: {error}", file=sys.stderr)
        return 2
    return 1 if breaking else 0


if __name__ == "__main__":
    sys.exit(main())
