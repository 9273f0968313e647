"""``vllm-tt audit``: five points that an operator checks before a rollout, each with its evidence."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from vllm_tt_plugin import compat
from vllm_tt_plugin.cli.answer import AsJson, VerbError, print_json, verb
from vllm_tt_plugin.cli.manifest import read as read_manifest
from vllm_tt_plugin.cli.points import cadence, interface, isolation, pinning, scheduling, trial
from vllm_tt_plugin.cli.points.finding import Finding

SHOWN = 20
"""Lines of evidence of a point in the report; JSON has all."""


@verb
def audit(
    manifest: Annotated[Path | None, typer.Option(help="The fleet's manifest, for the point on build pinning.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the package index.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check upstream cadence, core isolation, build pinning, scheduler constraints and API compatibility.

    Serves a model without weights on the software mesh: no card is used, and it takes about a minute.
    Exit code 0: five times pass. 1: a point fails. 3: none fails, but for one there is no evidence.
    """
    pinned = read_manifest(manifest) if manifest is not None else None
    findings = look(pinned, offline=offline)
    text = markdown(findings)
    if report is not None:
        try:
            report.write_text(text, encoding="utf-8")
        except OSError as error:
            raise VerbError(f"--report {report}: {error.strerror}; choose a file that can be written") from error
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        print(text, end="")
    raise typer.Exit(code_of(findings))


def look(pinned: Mapping[str, Any] | None, *, offline: bool) -> list[Finding]:
    """The five findings."""
    return [
        cadence.judge(None if offline else cadence.newest_release(), compat.load()),
        isolation.look(),
        pinning.look(pinned),
        *served(),
    ]


def served() -> list[Finding]:
    """The two points that need a server."""
    points = (scheduling.POINT, interface.POINT)
    if compat.installed_vllm() is None:
        return [Finding(point, "unknown", ("vLLM is not installed",), "`vllm-tt install-vllm`") for point in points]
    if not trial.available():
        do = "install the software mesh: `pip install 'vllm-tt-plugin[host]'`"
        return [Finding(point, "unknown", ("tt-hostmesh is not installed",), do) for point in points]
    try:
        with tempfile.TemporaryDirectory(prefix="vllm-tt-audit-") as folder:
            found = trial.run(Path(folder))
    except trial.FAILURES as error:
        why = tuple(line for line in str(error).splitlines() if line.strip())
        return [Finding(point, "unknown", ("no trial could be run", *why), "`vllm-tt doctor`") for point in points]
    scheduler = scheduling.judge(found.steps, trial.LIMITS, found.asked, found.answered)
    try:
        stock = interface.stock_schema()
    except RuntimeError as error:
        evidence = ("stock vLLM's schema cannot be made", str(error))
        return [scheduler, Finding(interface.POINT, "unknown", evidence, "`nox -s surface` for this release")]
    return [scheduler, interface.judge(stock, found.schema, compat.installed_vllm())]


def code_of(findings: Sequence[Finding]) -> int:
    verdicts = {finding.verdict for finding in findings}
    return 1 if "fail" in verdicts else 3 if "unknown" in verdicts else 0


def markdown(findings: Sequence[Finding]) -> str:
    """The report: a table of verdicts, then the evidence of each point."""
    lines = ["# Audit", "", "| point | verdict |", "|---|---|"]
    lines += [f"| {finding.point} | {finding.verdict} |" for finding in findings]
    for finding in findings:
        lines += ["", f"## {finding.point[0].upper()}{finding.point[1:]}: {finding.verdict}", ""]
        lines += [f"* {line}" for line in finding.evidence[:SHOWN]]
        if len(finding.evidence) > SHOWN:
            lines.append(f"* and {len(finding.evidence) - SHOWN} more: see --json")
        if finding.do:
            lines += ["", f"Do: {finding.do}"]
    return "\n".join(lines) + "\n"
