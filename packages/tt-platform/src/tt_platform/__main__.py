"""``python -m tt_platform``: what machine is this. ``options`` and ``rules`` print the tables of the docs."""

from __future__ import annotations

import argparse
import sys

from tt_platform.detect import Facts, detect
from tt_platform.docs import options_page, rules_page


def table(facts: Facts) -> str:
    """The facts in three columns."""
    rows = [("fact", "value", "reason"), *facts.rows()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {reason}" for name, value, reason in rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tt_platform", description="Facts about the Tenstorrent machine.")
    parser.add_argument("what", nargs="?", choices=("facts", "options", "rules"), default="facts")
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON object")
    given = parser.parse_args(arguments)
    if given.what == "options":
        print(options_page(), end="")
    elif given.what == "rules":
        print(rules_page(), end="")
    else:
        facts = detect()
        print(facts.as_json() if given.json else table(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
