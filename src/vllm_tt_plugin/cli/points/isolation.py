"""Core isolation: the installed vLLM is what was installed, knows no vendor, and is not patched at run time."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from vllm_tt_plugin.cli.points.finding import Finding, judged

POINT = "core isolation"
VENDOR = re.compile(r"\b(ttnn|tt_metal|tt-metal|tenstorrent|vllm_tt_plugin|tt_platform|TTPlatform)\b", re.IGNORECASE)
SOURCES = {".py", ".json", ".toml", ".cpp", ".h"}


def installed() -> Distribution | None:
    try:
        return distribution("vllm")
    except PackageNotFoundError:
        return None


def differing(found: Distribution) -> tuple[list[str], int]:
    """Files that are not what RECORD says, and how many were compared."""
    wrong: list[str] = []
    compared = 0
    for path in found.files or ():
        if path.hash is None or path.suffix == ".pyc" or str(path).startswith(".."):
            continue
        compared += 1
        where = Path(str(path.locate()))
        if not where.exists():
            wrong.append(f"{path} is missing")
        elif digest(where, path.hash.mode) != path.hash.value:
            wrong.append(f"{path} is not what was installed")
    return wrong, compared


def digest(path: Path, mode: str) -> str:
    """The hash of a file as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.new(mode, path.read_bytes()).digest()).rstrip(b"=").decode()


def extra_files(found: Distribution, folder: Path) -> list[str]:
    """Python files inside the package that nobody recorded: added by hand."""
    recorded = {Path(str(path.locate())).resolve() for path in found.files or ()}
    return [
        f"{path.relative_to(folder.parent)} was not installed"
        for path in sorted(folder.rglob("*.py"))
        if path.resolve() not in recorded
    ]


def vendor_symbols(folder: Path) -> tuple[list[str], int]:
    """Lines of the core that name the vendor, and how many files were searched."""
    found: list[str] = []
    searched = 0
    for path in sorted(folder.rglob("*")):
        if path.suffix not in SOURCES or not path.is_file():
            continue
        searched += 1
        text = path.read_text(encoding="utf-8", errors="replace")
        if VENDOR.search(text):
            found += [
                f"{path.relative_to(folder.parent)}:{number} names the vendor: {line.strip()[:80]}"
                for number, line in enumerate(text.splitlines(), 1)
                if VENDOR.search(line)
            ]
    return found, searched


def patched() -> tuple[list[str], int]:
    """What a process that loaded the plugin has changed in vLLM, and how many attributes were looked at.

    In a child process. Raises RuntimeError with the last line of its output when it fails.
    """
    command = [sys.executable, "-m", "vllm_tt_plugin.cli.points.patched"]
    environ = {**os.environ, "TT_RUNTIME": os.environ.get("TT_RUNTIME", "host")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    if done.returncode:
        raise RuntimeError("".join(done.stderr.strip().splitlines()[-1:]))
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["patched"], answer["looked_at"]


def judge(
    record: tuple[list[str], int],
    vendor: tuple[list[str], int],
    patches: tuple[list[str], int],
    extra: Iterable[str] = (),
) -> Finding:
    wrong = [*record[0], *extra, *vendor[0], *(f"patched at run time: {name}" for name in patches[0])]
    evidence = [
        f"{record[1]} files compared with RECORD",
        f"{vendor[1]} files searched for vendor symbols",
        f"{patches[1]} attributes of vLLM's modules and classes looked at in a process that loaded the plugin",
    ]
    return judged(
        POINT, wrong, evidence, "install vLLM again: `vllm-tt install-vllm`; report a patch as a fault of ours"
    )


def look() -> Finding:
    found = installed()
    if found is None:
        return Finding(POINT, "unknown", ("vLLM is not installed",), "`vllm-tt install-vllm`")
    folder = Path(str(found.locate_file("vllm")))
    try:
        patches = patched()
    except RuntimeError as error:
        return Finding(POINT, "unknown", (f"the plugin cannot be loaded: {error}",), "`vllm-tt doctor`")
    return judge(differing(found), vendor_symbols(folder), patches, extra_files(found, folder))
