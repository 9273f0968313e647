"""``python -m vllm_tt_plugin.cli``: the command ``vllm-tt``."""

from vllm_tt_plugin.cli import app

app(prog_name="vllm-tt")
