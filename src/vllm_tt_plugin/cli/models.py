"""``vllm-tt models``: which class serves which architecture, and whether it can be imported here."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated, Any, cast

import typer

from vllm_tt_plugin.cli.answer import AsJson, VerbError, print_json, print_table, verb


class Runtime(str, Enum):
    TTNN = "ttnn"
    HOST = "host"


@verb
def models(
    architecture: Annotated[
        str | None, typer.Argument(help="Show this one in full, with or without the TT prefix.")
    ] = None,
    runtime: Annotated[Runtime | None, typer.Option(help="Whose models. Default: TT_RUNTIME, else ttnn.")] = None,
    test_models: Annotated[bool, typer.Option("--test-models", help="With those of register_test_models.")] = False,
    as_json: AsJson = False,
) -> None:
    """List architectures with their classes, variants and capabilities, and which can be imported here."""
    from tt_registry import OverrideError, UnknownArchitecture, UnknownVariant, known, resolve
    from tt_registry.tables import as_details
    from tt_registry.tables import as_json as document

    chosen = runtime.value if runtime else "host" if os.environ.get("TT_RUNTIME") == "host" else "ttnn"
    try:
        if architecture is not None:
            found = resolve(architecture, runtime=chosen, register_test_models=test_models)
            print_json(document(found)) if as_json else print(as_details(found))
            return
        answers = [document(each) for each in known(runtime=chosen, register_test_models=test_models)]
    except (UnknownArchitecture, UnknownVariant, OverrideError) as error:
        raise VerbError(str(error)) from error
    if as_json:
        print_json(answers)
    else:
        columns = ("architecture", "class", "from", "variants", "importable", "capabilities")
        print_table(columns, map(_row, answers))


def _row(answer: dict[str, Any]) -> tuple[str, ...]:
    declared = cast("dict[str, object]", answer["capabilities"] or {})
    capable = [name.removeprefix("supports_") for name, value in declared.items() if value is True]
    return (
        str(answer["tt_architecture"]),
        str(answer["target"]),
        str(answer["source"]),
        ", ".join(map(str, answer["variants"])),
        "yes" if answer["importable"] else f"no: {answer['reason']}",
        ", ".join(capable),
    )
