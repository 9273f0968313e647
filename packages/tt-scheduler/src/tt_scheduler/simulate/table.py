"""Results side by side as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping

from tt_scheduler.simulate.results import Results

COLUMNS = (
    "run",
    "goodput",
    "TTFT p50 s",
    "TTFT p99 s",
    "ITL p50 s",
    "ITL p99 s",
    "ITL max s",
    "e2e p50 s",
    "e2e p99 s",
    "prefill steps",
    "decode steps",
    "device busy",
)


def markdown(results: Mapping[str, Results]) -> str:
    """One row a run, in the given order."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for name, r in results.items():
        cells = (
            name,
            f"{r.goodput:.3f}",
            f"{r.ttft_p50:.3f}",
            f"{r.ttft_p99:.2f}",
            f"{r.itl_p50:.3f}",
            f"{r.itl_p99:.3f}",
            f"{r.itl_max:.2f}",
            f"{r.e2e_p50:.1f}",
            f"{r.e2e_p99:.1f}",
            str(r.prefill_steps),
            str(r.decode_steps),
            f"{r.busy:.1%}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
