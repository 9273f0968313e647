"""Scheduler constraints: what a mixed load did, step by step, against the documented rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from vllm_tt_plugin.cli.points.finding import Finding, judged

POINT = "scheduler constraints"
RULES = "docs/scheduling.md"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the launch allows a step: rows, tokens of a prefill step, prefill steps in a row while requests decode."""

    rows: int
    tokens: int
    streak: int


def judge(steps: Sequence[Mapping[str, Any]], limits: Limits, asked: int, answered: int) -> Finding:
    """``steps``: the worker's step log. ``asked`` and ``answered``: output tokens of the load."""
    counts = Counter(phase_of(step) for step in steps)
    wrong = [f"step {step.get('step')} is {phase_of(step)}: {step}" for step in steps if phase_of(step) == "mixed"]
    wrong += [
        f"step {step['step']} decodes {step['tokens']} tokens for {step['requests']} requests"
        for step in steps
        if step["phase"] == "decode" and step["tokens"] != step["requests"]
    ]
    wrong += [
        f"step {step['step']} has {step['requests']} rows, {limits.rows} fit"
        for step in steps
        if step["requests"] > limits.rows
    ]
    wrong += [
        f"step {step['step']} has {step['tokens']} tokens, the budget is {limits.tokens}"
        for step in steps
        if step["tokens"] > limits.tokens
    ]
    longest = longest_streak(steps)
    if longest > limits.streak:
        wrong.append(f"{longest} prefill steps in a row while requests decode, {limits.streak} are allowed (rule I1)")
    if not counts["prefill"] or not counts["decode"]:
        wrong.append("the load was not mixed: it had no prefill steps or no decode steps")
    if answered != asked:
        wrong.append(f"{answered} of {asked} output tokens came")
    shown = ", ".join(f"{counts[phase]} {phase}" for phase in ("prefill", "decode", "mixed", "empty"))
    evidence = [
        f"steps: {shown}",
        f"longest run of prefill steps between decode steps: {longest}, allowed {limits.streak}",
        f"{answered} of {asked} output tokens came",
        f"rules: {RULES}",
    ]
    return judged(POINT, wrong, evidence, f"compare the step log with {RULES} and report it as a fault of ours")


def phase_of(step: Mapping[str, Any]) -> str:
    """prefill, decode, empty, or mixed for anything else that does both."""
    if not step["requests"]:
        return "empty"
    return step["phase"] if step["phase"] in ("prefill", "decode") else "mixed"


def longest_streak(steps: Sequence[Mapping[str, Any]]) -> int:
    """Prefill steps in a row between two decode steps: somebody was decoding before and after."""
    runs = [(phase, len(list(run))) for phase, run in groupby(step["phase"] for step in steps)]
    return max((length for phase, length in runs[1:-1] if phase == "prefill"), default=0)
