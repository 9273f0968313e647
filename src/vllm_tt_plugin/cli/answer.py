"""How a verb answers: a table for people or JSON for programs on standard output, an error of one line on the other."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from rich.console import Console
from rich.table import Table

from vllm_tt_plugin.compat import CompatError
from vllm_tt_plugin.install_vllm import InstallError
from vllm_tt_plugin.serving import ServerError

P = ParamSpec("P")
PIPE_WIDTH = 240
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]


class VerbError(ValueError):
    """One line: what is wrong and what to do."""


# What a verb may end with; anything else is a fault of ours and keeps its traceback.
EXPECTED = (VerbError, CompatError, InstallError, ServerError)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. ``state``: ok, warn or fail; ``do``: what to do about it, or nothing."""

    name: str
    state: str
    found: str
    do: str = ""


def verb(function: Callable[P, None]) -> Callable[P, None]:
    """A verb whose expected errors become one line and exit code 2."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except EXPECTED as error:
            give_up(function.__name__, str(error))

    return run


def give_up(name: str, message: str) -> NoReturn:
    print(f"vllm-tt {name.replace('_', '-')}: {message}", file=sys.stderr)
    raise typer.Exit(2)


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Cut to the terminal's width; in a pipe lines are as long as they need to be."""
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def worst(states: Iterable[str], order: Sequence[str] = ("ok", "warn", "fail")) -> str:
    """The last of the order that occurs."""
    return max(states, key=order.index, default=order[0])
