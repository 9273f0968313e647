"""``vllm-tt simulate``: the scheduler's simulator."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path

import typer

from vllm_tt_plugin.cli.answer import VerbError, verb


@verb
def simulate(context: typer.Context) -> None:
    """Run scheduling policies on a workload. The options are those of `python -m tt_scheduler.simulate`, and --json."""
    from tt_scheduler.simulate.__main__ import main

    arguments = list(context.args)
    if "--json" not in arguments:
        raise typer.Exit(main(arguments))
    arguments.remove("--json")
    if "--out" in arguments:
        raise VerbError("--json and --out cannot be combined: --out writes results.json itself")
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            code = main([*arguments, "--out", folder])
        results = Path(folder) / "results.json"
        if code == 0:
            print(json.dumps(json.loads(results.read_text(encoding="utf-8")), indent=2))
    raise typer.Exit(code)
