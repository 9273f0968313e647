"""``vllm-tt manifest``: what exactly is installed, to be written down before a rollout and checked after one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from vllm_tt_plugin.cli import inventory
from vllm_tt_plugin.cli.answer import AsJson, VerbError, print_json, print_table, verb


@verb
def manifest(
    write: Annotated[Path | None, typer.Option(help="Write the manifest to this file.")] = None,
    check: Annotated[Path | None, typer.Option(help="Compare with the manifest in this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Versions and hashes of vLLM, the packages, ttnn, torch and transformers, and how vLLM was built.

    Exit code 1: --check found a difference.
    """
    if write is not None and check is not None:
        raise VerbError("--write and --check cannot be combined: check first, then write")
    found = inventory.take()
    if check is not None:
        _check(check, found, as_json)
    elif write is not None:
        try:
            write.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise VerbError(f"--write {write}: {error.strerror}; choose a file that can be written") from error
        print(f"wrote {write}")
    elif as_json:
        print_json(found)
    else:
        packages: dict[str, dict[str, Any] | None] = found["packages"]
        rows = [(name, *_row(each)) for name, each in packages.items()]
        print_table(("package", "version", "sha256", ""), rows)
        print(f"\nPython {found['python']} on {found['machine']}; vLLM build target: {found['vllm_build']['target']}")


def _row(package: dict[str, Any] | None) -> tuple[str, str, str]:
    if package is None:
        return "-", "", "not installed"
    return package["version"], str(package["sha256"])[:16], "editable" if package["editable"] else ""


def _check(path: Path, found: dict[str, Any], as_json: bool) -> None:
    lines = inventory.drift(read(path), found)
    if as_json:
        print_json({"ok": not lines, "drift": lines})
    else:
        print("\n".join(lines) or f"this environment is that of {path}")
    raise typer.Exit(1 if lines else 0)


def read(path: Path) -> dict[str, Any]:
    """A manifest from a file. VerbError when there is none in it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VerbError(f"{path} cannot be read: {error}; `vllm-tt manifest --write {path}` makes one") from error
    found = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if found.get("format") != 1:
        raise VerbError(f"{path} is no manifest of format 1: `vllm-tt manifest --write {path}` makes one")
    return found
