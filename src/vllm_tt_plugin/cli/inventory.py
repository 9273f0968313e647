"""The fleet manifest: exact versions and content hashes of everything that a served token depends on."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, cast

from vllm_tt_plugin import compat, install_vllm

OURS = ("vllm-tt-plugin", "tt-registry", "tt-scheduler", "tt-sampling", "tt-platform", "tt-worker", "tt-hostmesh")
FOREIGN = ("vllm", "ttnn", "torch", "transformers", "tokenizers", "numpy", "xgrammar")
LOCAL = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
"""Files of a dist-info that say how a package came here, not what it is."""


def take() -> dict[str, Any]:
    """The manifest of this environment. Taken twice it is the same; two hosts with the same packages agree."""
    matrix = compat.load()
    installed = compat.installed_vllm()
    row = next((r for r in matrix.releases if r.vllm == (installed or "").partition("+")[0]), None)
    return {
        "format": 1,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: described(name) for name in (*FOREIGN, *OURS)},
        "vllm_build": build(row),
    }


def described(name: str) -> dict[str, Any] | None:
    """Version and hash of an installed package; None when it is not there. ``editable``: the hash is of its sources."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return None
    folder = editable_folder(found, name)
    digest = hash_of_folder(folder) if folder is not None else hash_of_record(found)
    return {"version": found.version, "sha256": digest, "editable": folder is not None}


def hash_of_record(found: Distribution) -> str | None:
    """A hash of the hashes that the installer recorded. Scripts, which name their interpreter, do not count."""
    lines = [
        f"{path} {path.hash.value}"
        for path in found.files or ()
        if path.hash is not None and not str(path).startswith("..") and path.name not in LOCAL
    ]
    return _hash(sorted(lines)) if lines else None


def editable_folder(found: Distribution, name: str) -> Path | None:
    """The sources of a package that is installed editable."""
    text = found.read_text("direct_url.json")
    if text is None or not json.loads(text).get("dir_info", {}).get("editable"):
        return None
    spec = find_spec(name.replace("-", "_"))
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def hash_of_folder(folder: Path) -> str:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return _hash(f"{path.relative_to(folder).as_posix()} {_hash_of(path)}" for path in files)


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def build(row: compat.Release | None) -> dict[str, Any]:
    """How the installed vLLM is built: the row, and the recipe's command with its variables, free of local paths."""
    target = install_vllm.inspect(sys.executable, "uv")
    document: dict[str, Any] = {"target": None if target.vllm is None else "device" if target.device_code else "empty"}
    if row is not None:
        command = install_vllm.build_commands(row, target, Path("WORK"))[-1]
        document |= {"row": asdict(row), "variables": dict(command.variables), "command": _portable(command.argv)}
    return document


def _portable(argv: Iterable[str]) -> list[str]:
    return [PurePosixPath(each).name if each.startswith("WORK/env") else each for each in argv]


def drift(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> list[str]:
    """One line a difference between two manifests."""
    lines: list[str] = []
    for key in sorted(wanted.keys() | found.keys()):
        name = f"{path}.{key}" if path else key
        before, after = _inner(wanted.get(key)), _inner(found.get(key))
        if before is not None and after is not None:
            lines += drift(before, after, name)
        elif wanted.get(key) != found.get(key):
            lines.append(f"{name}: {_short(wanted.get(key))} -> {_short(found.get(key))}")
    return lines


def _inner(value: object) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        package = cast("Mapping[str, object]", value)
        return f"{package.get('version')} {str(package.get('sha256'))[:12]}"
    text = "absent" if value is None else str(value)
    return text[:12] if len(text) == 64 else text
