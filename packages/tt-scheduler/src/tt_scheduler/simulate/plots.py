"""PNG plots of runs. Needs matplotlib: pip install tt-scheduler[plots]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tt_scheduler.simulate.results import gaps, ttft
from tt_scheduler.simulate.run import Run

COLOURS = {"prefill": "tab:orange", "decode": "tab:blue"}


def latency_cdfs(runs: Mapping[str, Run], path: Path) -> None:
    """Cumulative shares of time to first token and of inter-token latency, one curve a run."""
    figure, axes = _figure(1, 2, (11, 4))
    for name, run in runs.items():
        _curve(axes[0], [ttft(served) for served in run.served], name)
        _curve(axes[1], [gap for served in run.served for gap in gaps(served)], name)
    axes[0].set_xlabel("time to first token, s")
    axes[1].set_xlabel("inter-token latency, s")
    axes[1].set_ylim(0.8, 1.0)
    for axis in axes:
        axis.set_xscale("log")
        axis.grid(alpha=0.3)
        axis.set_ylabel("share of requests" if axis is axes[0] else "share of tokens")
    axes[0].legend(fontsize="small")
    _save(figure, path)


def phase_timeline(runs: Mapping[str, Run], path: Path, start: float, seconds: float) -> None:
    """Which phase ran when, in a window of the run, one band a run. start, seconds: seconds."""
    figure, axes = _figure(1, 1, (11, 1 + 0.6 * len(runs)))
    axis = axes[0]
    for row, run in enumerate(runs.values()):
        for phase, colour in COLOURS.items():
            bars = [
                (step.start, step.ms / 1e3)
                for step in run.steps
                if step.phase.value == phase and start - step.ms / 1e3 < step.start < start + seconds
            ]
            axis.broken_barh(bars, (row - 0.4, 0.8), facecolors=colour, label=phase if not row else None)
    axis.set_yticks(range(len(runs)), list(runs))
    axis.set_xlim(start, start + seconds)
    axis.set_xlabel("s")
    axis.invert_yaxis()
    axis.legend(loc="upper right", fontsize="small")
    _save(figure, path)


def _curve(axis: Any, values: Sequence[float], name: str) -> None:
    ordered = sorted(values)
    shares = [(index + 1) / len(ordered) for index in range(len(ordered))]
    axis.plot(ordered, shares, label=name)


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, list[Any]]:
    # Without pyplot: no display, and no state that outlives the figure.
    figure: Any = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    axes: Any = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
