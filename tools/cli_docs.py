"""Writes docs/cli.md from the help of the verbs: ``python tools/cli_docs.py``. A test fails when it has drifted."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from typer.models import ArgumentInfo, OptionInfo  # noqa: E402

from vllm_tt_plugin.cli import app  # noqa: E402

PAGE = ROOT / "docs" / "cli.md"
HEAD = """# vllm-tt

The command of the meta-package. Every verb answers a person in tables and a program with `--json`. Exit code 0 is a
good answer, 1 a bad one, and 2 means that there is none: one line on standard error says what is wrong and what to do.
`python -m vllm_tt_plugin.cli` is the same command.
"""
SIMULATE = "The options are those of `python -m tt_scheduler.simulate`, which `vllm-tt simulate --help` lists."


def page() -> str:
    """The whole document. Built from the verbs' signatures: how typer lays out its help differs between releases."""
    verbs = [command.callback for command in app.registered_commands if command.callback is not None]
    return "\n".join([HEAD, *map(section, verbs)])


def section(verb: Callable[..., Any]) -> str:
    """A verb: its text, and a table of what it takes."""
    name = verb.__name__.replace("_", "-")
    text = inspect.cleandoc(verb.__doc__ or "")
    rows = list(options(verb))
    if name == "simulate":
        text, rows = f"{text.split('.')[0]}. {SIMULATE}", ["| `--json` | Answer with one JSON document. |"]
    return "\n".join([f"## vllm-tt {name}", "", text, "", "| | |", "|---|---|", *rows, ""])


def options(verb: Callable[..., Any]) -> Iterator[str]:
    """A row of the table for each parameter."""
    for name, hint in get_type_hints(verb, include_extras=True).items():
        kind, *told = get_args(hint) or (hint,)
        for info in told:
            if isinstance(info, ArgumentInfo):
                yield f"| `[{name.upper()}]` | {info.help} |"
            elif isinstance(info, OptionInfo):
                # Of an annotated option typer calls the first spelling the default.
                spelled = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
                yield f"| `{spelled[0] if spelled else '--' + name}{value_of(kind)}` | {info.help} |"


def value_of(kind: Any) -> str:
    """What follows an option: nothing after a flag."""
    if kind is bool:
        return ""
    first = next((each for each in get_args(kind) if each is not type(None)), kind)
    if issubclass(first, Enum):
        return " " + "\\|".join(str(member.value) for member in first)
    return " FILE" if issubclass(first, Path) else " X"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
