"""The command ``vllm-tt``: a file a verb. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import typer

from vllm_tt_plugin.cli.audit import audit
from vllm_tt_plugin.cli.compat import compat
from vllm_tt_plugin.cli.doctor import doctor
from vllm_tt_plugin.cli.install_vllm import install_vllm
from vllm_tt_plugin.cli.manifest import manifest
from vllm_tt_plugin.cli.models import models
from vllm_tt_plugin.cli.simulate import simulate

app = typer.Typer(
    name="vllm-tt",
    help="vLLM on Tenstorrent: look at an environment, prove it, install what it needs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (doctor, models, compat, manifest, audit, install_vllm):
    app.command()(verb)
# Its options are the simulator's own.
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(
    simulate
)

__all__ = ["app"]
