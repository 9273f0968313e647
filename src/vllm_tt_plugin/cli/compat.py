"""``vllm-tt compat``: the compat matrix, this environment's row, and how to move to another."""

from __future__ import annotations

import sys
from dataclasses import asdict

import typer

from vllm_tt_plugin import compat as rows
from vllm_tt_plugin.cli.answer import AsJson, print_json, print_table, verb


@verb
def compat(as_json: AsJson = False) -> None:
    """Show the vLLM releases that are supported, the installed one, and what to run to move to another.

    Exit code 0: the installed vLLM is a tested row. 1: it is not.
    """
    matrix = rows.load()
    installed = rows.installed_vllm()
    python = sys.version_info[:2]
    verdict = rows.check_installed(installed, matrix=matrix, python=python)
    here = (installed or "").partition("+")[0]
    moves = {r.vllm: move(r, here, python) for r in matrix.releases}
    if as_json:
        releases = [{**asdict(r), "here": r.vllm == here, "move": moves[r.vllm]} for r in matrix.releases]
        print_json(
            {
                "installed": installed,
                "ok": verdict.ok,
                "message": verdict.message,
                "default": matrix.default.vllm,
                "releases": releases,
            }
        )
    else:
        columns = ("vLLM", "status", "Python", "torch", "transformers", "to move there")
        print_table(
            columns, [(r.vllm, r.status, r.python, r.torch, r.transformers, moves[r.vllm]) for r in matrix.releases]
        )
        print(f"\n{verdict.message or f'vLLM {installed} is a tested row'}")
    raise typer.Exit(0 if verdict.ok else 1)


def move(release: rows.Release, here: str, python: tuple[int, ...]) -> str:
    """What to run to have this row."""
    if release.vllm == here:
        return "installed here"
    if not rows.admits(release.python, python):
        return f"needs Python {release.python}"
    return f"vllm-tt install-vllm --version {release.vllm}"
