"""API compatibility: the OpenAPI schema that our server shows against the one of stock vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

from vllm_tt_plugin.cli.points.finding import Finding, judged

POINT = "API compatibility"


def stock_schema() -> dict[str, Any]:
    """The schema of the installed vLLM with no plugin loaded, from its own application, in a child process.

    Raises RuntimeError with the last line of the child's output when it fails.
    """
    command = [sys.executable, "-m", "vllm_tt_plugin.cli.points.stock"]
    # An empty list: none of the installed plugins is loaded.
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "VLLM_PLUGINS": ""}, check=False)
    if done.returncode:
        raise RuntimeError("".join(done.stderr.strip().splitlines()[-1:]))
    return json.loads(done.stdout.splitlines()[-1])


def differences(stock: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """One line a path or component that only one has, or that is not the same."""
    lines: list[str] = []
    for kind, section in (("path", "paths"), ("schema", "components")):
        before, after = _entries(stock, section), _entries(ours, section)
        lines += [f"{kind} {name} of stock vLLM is missing" for name in sorted(before.keys() - after.keys())]
        lines += [f"{kind} {name} is not in stock vLLM" for name in sorted(after.keys() - before.keys())]
        for name in sorted(before.keys() & after.keys()):
            lines += [f"{kind} {name}{line}" for line in _changes(before[name], after[name])]
    return lines


def _entries(schema: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    found = schema.get(section, {})
    return found.get("schemas", {}) if section == "components" else found


def _changes(before: Any, after: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        keys = sorted(old.keys() | new.keys())
        return [line for key in keys for line in _changes(old.get(key), new.get(key), f"{path}.{key}")]
    return [] if before == after else [f"{path}: {json.dumps(before)} -> {json.dumps(after)}"]


def judge(stock: Mapping[str, Any], ours: Mapping[str, Any], vllm: str | None) -> Finding:
    evidence = [
        f"vLLM {vllm}: {len(_entries(stock, 'paths'))} paths, {len(_entries(stock, 'components'))} schemas compared"
    ]
    return judged(POINT, differences(stock, ours), evidence, "look for a plugin that adds routes: `vllm-tt doctor`")
