"""``python -m vllm_tt_plugin.cli.points.stock``: the OpenAPI schema of the installed vLLM's own application."""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from typing import Any

# Where a release keeps them; they moved in 0.29 and 0.33.
APPLICATIONS = ("vllm.entrypoints.launchers.app", "vllm.entrypoints.openai.api_server")
OPTIONS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)


def first(name: str, modules: tuple[str, ...]) -> Any:
    """The object from the first module that has it."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise RuntimeError(f"this vLLM has {name} in none of {', '.join(modules)}")


def main() -> None:
    """Without a platform vLLM cannot parse its command line, so the options are taken with their defaults."""
    options = Namespace(**vars(first("FrontendArgs", OPTIONS)()))
    print(json.dumps(first("build_app", APPLICATIONS)(options, ("generate",)).openapi()))


if __name__ == "__main__":
    main()
