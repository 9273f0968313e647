"""`python -m tt_registry`: what is served here, from where, and whether it can be imported."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from .architectures import UnknownVariant
from .lookup import known, resolve
from .overrides import OverrideError
from .resolution import Resolution, UnknownArchitecture
from .tables import BLOCKS, as_details, as_json, as_table, update_blocks


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.markdown:
        print("\n\n".join(BLOCKS[name]() for name in ([options.markdown] if options.markdown != "all" else BLOCKS)))
        return 0
    if options.update:
        path = Path(options.update)
        path.write_text(update_blocks(path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    try:
        print(_answer(options))
    except (UnknownArchitecture, UnknownVariant, OverrideError) as error:
        print(f"tt_registry: {error}", file=sys.stderr)
        return 1
    return 0


def _answer(options: argparse.Namespace) -> str:
    where = {"runtime": options.runtime, "register_test_models": options.test_models}
    if options.architecture:
        found: Resolution = resolve(options.architecture, **where)
        return json.dumps(as_json(found), indent=2) if options.json else as_details(found)
    everything = known(**where)
    return json.dumps([as_json(r) for r in everything], indent=2) if options.json else as_table(everything)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tt_registry", description=__doc__)
    parser.add_argument("architecture", nargs="?", help="show this one in full; with or without the TT prefix")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--runtime",
        choices=("ttnn", "host"),
        default="host" if os.environ.get("TT_RUNTIME") == "host" else "ttnn",
        help="whose models: tt-metal's, or those of the software mesh (default: host if TT_RUNTIME says so, else ttnn)",
    )
    parser.add_argument("--test-models", action="store_true", help="with the models of register_test_models")
    parser.add_argument("--markdown", nargs="?", const="all", choices=("all", *BLOCKS), help="print tables of the docs")
    parser.add_argument("--update", metavar="FILE", help="rewrite the generated tables inside a document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
