"""Log lines that other people's scripts search for keep their beginning."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = [
    "Model requested DP (--data_parallel_size=",
    " but runs as a single device execute; running single-process TT lane-DP instead",
    "Using TTLaneCoordinator with ",
    "Automatic prefix caching is ",
    "Prefix caching is not supported in TT backend for ",
    "Async scheduling was requested, but TT model ",
    "Chunked prefill is not supported for ",
    # CI reads this one.
    "Chunked prefill enabled for ",
    " with chunked prefill disabled, bumping",
    " exceeds TT device limit of ",
    "Bound TT_VISIBLE_DEVICES=",
    "TT worker standard-DP binding: ",
    "Resolved TT single-host DP device groups: ",
    "Reordered TT single-host DP device groups",
    "Attempting to open mesh device with grid shape ",
    "multidevice with ",
    "Setting fabric config: ",
    "Getting max_tokens_all_users=",
    "Setting max_tokens_all_users=",
    "TTModelRunner: trace_mode=",
    "Skipping model warmup",
    "Registered TT model ",
    "Applied TT_MODEL_CLASS_OVERRIDES: ",
    "Decode interleave enabled: at most ",
    "Decode interleave disabled",
    "TT scheduler: widest decode batch reached ",
]
"""Those of the reference plugin, but for "Prefill batch contained N running decode request(s)": a step that mixes both
is refused here, not filtered."""


@cache
def texts() -> str:
    """Every text in our sources, adjacent pieces put together."""
    found: list[str] = []
    for path in [*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("src/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                pieces = (each.value if isinstance(each, ast.Constant) else "%" for each in node.values)
                found.append("".join(map(str, pieces)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_scripts_search_for_is_still_written(line: str) -> None:
    assert line in texts()
