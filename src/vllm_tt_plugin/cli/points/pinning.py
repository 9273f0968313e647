"""Build pinning: the install recipe names one version and one target, and what is installed is what it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vllm_tt_plugin import compat
from vllm_tt_plugin.cli import inventory
from vllm_tt_plugin.cli.points.finding import Finding, judged

POINT = "build pinning"
NEEDED = ("vllm", "torch", "transformers", "vllm-tt-plugin", "tt-registry", "tt-scheduler", "tt-sampling", "tt-worker")


def judge(first: Mapping[str, Any], second: Mapping[str, Any], pinned: Mapping[str, Any] | None = None) -> Finding:
    """``first`` and ``second``: the manifest, taken twice; ``pinned``: the one of the fleet, when there is one."""
    packages, build = first["packages"], first["vllm_build"]
    wrong = [f"the manifest is not reproducible: {line}" for line in inventory.drift(first, second)]
    wrong += [f"{name} is not installed" for name in NEEDED if packages.get(name) is None]
    wrong += [f"{name} has no hash" for name, each in packages.items() if each is not None and not each["sha256"]]
    if build["target"] != "empty":
        wrong.append(f"the installed vLLM was built for the target {build['target']}, not empty")
    wrong += recipe(build)
    if pinned is not None:
        wrong += [f"differs from the fleet's manifest: {line}" for line in inventory.drift(pinned, first)]
    evidence = [
        f"{name} {each['version']} sha256 {str(each['sha256'])[:16]}" for name, each in packages.items() if each
    ]
    evidence.append(
        f"build target: {build['target']}; "
        + ("compared with the fleet's manifest" if pinned else "no fleet manifest given")
    )
    return judged(
        POINT, wrong, evidence, "`vllm-tt install-vllm`, then `vllm-tt manifest --write FILE` and keep the file"
    )


def recipe(build: Mapping[str, Any]) -> list[str]:
    """What is wrong with the recipe of the installed row: it must name one version, from source, for no device."""
    if "row" not in build:
        return ["the installed vLLM is no row of the compat matrix, so there is no recipe for it"]
    release, variables, command = build["row"]["vllm"], build["variables"], build["command"]
    wrong: list[str] = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", release) or f"vllm=={release}" not in command:
        wrong.append(f"the recipe does not name one version: {' '.join(command)}")
    if variables.get("VLLM_TARGET_DEVICE") != "empty":
        wrong.append("the recipe does not build for the empty target")
    if "--no-binary" not in command:
        wrong.append("the recipe may take a wheel that somebody else built")
    return wrong


def look(pinned: Mapping[str, Any] | None) -> Finding:
    if compat.installed_vllm() is None:
        return Finding(POINT, "unknown", ("vLLM is not installed",), "`vllm-tt install-vllm`")
    return judge(inventory.take(), inventory.take(), pinned)
