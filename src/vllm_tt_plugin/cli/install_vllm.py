"""``vllm-tt install-vllm``: vLLM for the empty target, beside the torch and numpy that are there."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vllm_tt_plugin import compat
from vllm_tt_plugin import install_vllm as installer
from vllm_tt_plugin.cli.answer import AsJson, print_json, verb


@verb
def install_vllm(
    version: Annotated[
        str | None, typer.Option(help="A release of the compat matrix. Default: the default row.")
    ] = None,
    python: Annotated[
        str, typer.Option(help="The interpreter of the environment to install into.", show_default=False)
    ] = sys.executable,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build vLLM from its source distribution without device code and install it. torch, numpy and opencv are kept."""
    matrix = compat.load()
    release = matrix.row(version) if version else matrix.default
    target = installer.inspect(python, installer.find_uv(python))
    cache = installer.cache_dir()
    plan = installer.plan(release, target, cache)
    done = False
    if not dry_run:
        quiet = installer.execute if as_json else installer.announce_and_execute
        done = installer.install(release, target, cache=cache, run=quiet)
    if as_json:
        print_json(
            {
                "vllm": release.vllm,
                "installed": done,
                "already_there": plan.already_there,
                "kept": list(plan.kept),
                "excluded": dict(plan.excluded),
                "commands": [str(command) for command in plan.commands],
            }
        )
    else:
        print(installer.explain(plan, dry_run=dry_run))
