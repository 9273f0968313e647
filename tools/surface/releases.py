"""The sources of a vLLM release, never imported: from a source distribution, a wheel or a folder."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath


def read_release(path: Path) -> dict[str, str]:
    """``vllm/a/b.py`` -> its text. Takes an sdist (.tar.gz), a wheel (.whl), or a folder that holds ``vllm``.

    Raises FileNotFoundError when there is no vllm package in it.
    """
    if path.suffix == ".whl":
        files = _of_wheel(path)
    elif path.is_file():
        files = _of_archive(path)
    else:
        files = {f"vllm/{each.relative_to(path / 'vllm')}": _text(each.read_bytes()) for each in _of_folder(path)}
    if "vllm/__init__.py" not in files:
        raise FileNotFoundError(f"{path} holds no vllm package: give an sdist, a wheel, or a folder with vllm in it")
    return files


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _of_wheel(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("vllm/") and name.endswith(".py")]
        return {name: _text(archive.read(name)) for name in names}


def _of_archive(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            inside = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if member.isfile() and inside.suffix == ".py" and inside.parts[0] == "vllm":
                file = archive.extractfile(member)
                found[str(inside)] = _text(file.read()) if file is not None else ""
    return found


def _of_folder(path: Path) -> list[Path]:
    return sorted((path / "vllm").rglob("*.py"))


def module_file(module: str, files: Mapping[str, str]) -> str | None:
    """The file of a dotted module name; None when the release has no such module."""
    base = module.replace(".", "/")
    return next((name for name in (f"{base}.py", f"{base}/__init__.py") if name in files), None)
