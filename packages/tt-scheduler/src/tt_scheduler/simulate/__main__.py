"""python -m tt_scheduler.simulate: run scenarios on a workload and write what came out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

from tt_scheduler.simulate.cost import PRESETS
from tt_scheduler.simulate.lane import EngineSize
from tt_scheduler.simulate.progress import Progress
from tt_scheduler.simulate.results import Results, Target
from tt_scheduler.simulate.run import Run
from tt_scheduler.simulate.scenario import Scenario
from tt_scheduler.simulate.table import markdown
from tt_scheduler.simulate.timeline import write_timeline
from tt_scheduler.simulate.workload import Arrival, poisson, read_trace


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m tt_scheduler.simulate", description=__doc__)
    p.add_argument("--device", choices=sorted(PRESETS), default="llama-8b-t3k", help="model and machine")
    p.add_argument(
        "--overhead-ms",
        type=float,
        default=0.0,
        help="the engine's own time between two steps where the device waits for it",
    )
    source = p.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, help="CSV with TIMESTAMP,ContextTokens,GeneratedTokens")
    source.add_argument("--poisson", type=float, metavar="RATE", help="random arrivals, requests a second")
    p.add_argument("--stretch", type=float, default=1.0, help="factor on the time between arrivals of a trace")
    p.add_argument("--seconds", type=float, default=300.0, help="length of the workload")
    p.add_argument("--max-prompt", type=int, default=8192, help="longest prompt of a trace, tokens")
    p.add_argument("--prompts", type=_numbers, default=[128, 1024], help="prompt lengths of random arrivals")
    p.add_argument("--outputs", type=_numbers, default=[128], help="output lengths of random arrivals")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--run", action="append", metavar="NAME[:KEY=VALUE,...]", help="a scenario; may be repeated")
    p.add_argument("--rows", type=int, default=32, help="requests that run at once")
    p.add_argument("--kv-tokens", type=int, default=131_072, help="KV cache, tokens")
    p.add_argument("--block", type=int, default=32, help="KV block, tokens")
    p.add_argument("--budget", type=int, default=16_384, help="prefill budget of whole prompts, tokens")
    p.add_argument("--lanes", type=int, default=1)
    p.add_argument("--synchronous", action="store_true", help="decide a step after the one before it has ended")
    p.add_argument("--ttft", type=float, default=2.0, help="good: first token within, seconds")
    p.add_argument("--gap", type=float, default=0.2, help="good: no gap between tokens over, seconds")
    p.add_argument("--out", type=Path, help="folder for results.json, results.md, Chrome traces and PNG plots")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        scenarios = [Scenario.parse(text) for text in args.run or ["default"]]
        size = EngineSize(args.rows, args.kv_tokens, args.block, args.budget, lanes=args.lanes)
        workload = _workload(args)
        runs = {scenario.name: _simulate(scenario, workload, size, args) for scenario in scenarios}
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = {name: Results.of(run, Target(args.ttft, args.gap)) for name, run in runs.items()}
    print(markdown(results), end="")
    if args.out is not None:
        _write(args.out, runs, results)
    return 0


def _simulate(scenario: Scenario, workload: list[Arrival], size: EngineSize, args: argparse.Namespace) -> Run:
    progress = Progress(scenario.name)
    cost = replace(PRESETS[args.device], overhead_ms=args.overhead_ms)
    run = scenario.run(workload, cost, size, not args.synchronous, progress)
    progress.close()
    return run


def _workload(args: argparse.Namespace) -> list[Arrival]:
    if args.trace is not None:
        return read_trace(args.trace, args.stretch, args.seconds, args.max_prompt)
    return poisson(args.poisson, args.seconds, args.prompts, args.outputs, args.seed)


def _write(folder: Path, runs: dict[str, Run], results: dict[str, Results]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(markdown(results))
    (folder / "results.json").write_text(json.dumps({name: asdict(r) for name, r in results.items()}, indent=2) + "\n")
    for name, run in runs.items():
        write_timeline(run, folder / f"timeline-{_file_name(name)}.json")
    if find_spec("matplotlib") is None:
        print("no plots: matplotlib is not installed (pip install 'tt-scheduler[plots]')", file=sys.stderr)
        return
    from tt_scheduler.simulate.plots import latency_cdfs, phase_timeline

    latency_cdfs(runs, folder / "latency.png")
    busiest = max(next(iter(runs.values())).steps, key=lambda step: step.waiting, default=None)
    if busiest is not None:
        phase_timeline(runs, folder / "phases.png", max(0.0, busiest.start - 2), 6.0)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in name)


def _numbers(text: str) -> list[int]:
    return [int(item) for item in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
