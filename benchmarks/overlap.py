"""How busy vLLM keeps a device: a real engine over a model whose steps take a simulated time.

    python benchmarks/overlap.py --report docs/benchmarks/overlap.md

The engine is vLLM's AsyncLLM with its EngineCore in a process of its own, as `vllm serve` runs it. The model is the
software mesh's synthetic one: nothing is computed, a step ends when a device would have ended it. The device's own
timeline says how busy it was from the first submit to the last result. Greedy answers are checked, token for token.
"""

import argparse
import asyncio
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tools"))
os.environ.setdefault("TT_RUNTIME", "host")
os.environ.setdefault("TT_HOST_STRICT", "0")
os.environ.setdefault("MESH_DEVICE", "N150")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import vllm
from _quiet import Neighbours
from overlap_host import host_cost, host_table
from resident import resident
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind

from tt_hostmesh.spans import Span, busy_share, read_spans
from tt_hostmesh.synthetic.checkpoint import write_checkpoint
from tt_hostmesh.synthetic.cost import DeviceCost
from tt_hostmesh.synthetic.digest import continuation

VOCABULARY, ROWS, LENGTH, BLOCK = 49_152, 32, 512, 64
PREFILL_MS = 0.25
Params = dict[str, object]


@dataclass(frozen=True, slots=True)
class Case:
    """One load on an engine. goal, incumbent: device-busy share in percent; params: of request i; steady: 32 equal
    requests at once instead of 128 mixed ones."""

    name: str
    decode_ms: float
    goal: float
    incumbent: float
    params: Callable[[int], Params]
    steady: bool = False


def greedy(index: int) -> Params:
    return {"temperature": 0.0}


def nucleus(index: int) -> Params:
    return {"temperature": 0.8, "top_k": 20, "top_p": 0.9}


def penalties(index: int) -> Params:
    return {"temperature": 0.0, **({"frequency_penalty": 0.2, "presence_penalty": 0.3} if index % 4 == 0 else {})}


def logprobs(index: int) -> Params:
    return {"temperature": 0.0, **({"logprobs": 1} if index % 16 == 0 else {})}


CASES = (
    Case("greedy", 10, 98.5, 95.3, greedy),
    Case("top-p and top-k on the device", 10, 98.5, 94.9, nucleus),
    Case("penalties on a quarter of the requests", 10, 97.5, 91.8, penalties),
    Case("logprobs=1 on one request in sixteen", 10, 90.0, 72.7, logprobs),
    Case("steady batch, no arrivals, greedy", 10, 99.7, 99.8, greedy, steady=True),
    Case("greedy", 5, 97.0, 93.4, greedy),
    Case("logprobs=1 on one request in sixteen", 5, 82.0, 69.4, logprobs),
)


@dataclass(frozen=True, slots=True)
class Request:
    prompt: list[int]
    count: int
    params: Params

    def sampling(self) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.count,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            **self.params,
        )


@dataclass(slots=True)
class Window:
    """From the first submit to the last result, monotonic seconds; `wrong`: greedy answers that were not exact."""

    begin: float
    end: float
    checked: int
    wrong: int


def requests_of(case: Case) -> list[Request]:
    """128 requests: prompts of 16 to 256 tokens, outputs of 20 to 200; the steady batch: 32 of 64 and 400."""
    rng = random.Random(6)
    lengths = [(64, 400)] * ROWS if case.steady else [(rng.randint(16, 256), rng.randint(20, 200)) for _ in range(128)]
    return [
        Request([rng.randrange(VOCABULARY) for _ in range(prompt)], count, case.params(i))
        for i, (prompt, count) in enumerate(lengths)
    ]


def engine_arguments(checkpoint: Path, log: Path | None) -> dict[str, object]:
    tt = {"sample_on_device_mode": "all"} | ({"step_log": str(log)} if log else {})
    return {
        "model": str(checkpoint),
        "skip_tokenizer_init": True,
        "max_model_len": LENGTH,
        "max_num_seqs": ROWS,
        "block_size": BLOCK,
        "additional_config": {"tt": tt},
    }


async def serve(engine: object, requests: Sequence[Request]) -> Window:
    """Submit everything at once and read every answer."""

    async def one(index: int, request: Request) -> list[int]:
        tokens: list[int] = []
        prompt = TokensPrompt(prompt_token_ids=request.prompt)
        async for output in engine.generate(prompt, request.sampling(), f"{time.monotonic_ns()}-{index}"):
            tokens += output.outputs[0].token_ids
        return tokens

    begin = time.monotonic()
    answers = await asyncio.gather(*(one(i, request) for i, request in enumerate(requests)))
    window = Window(begin, time.monotonic(), 0, 0)
    for request, answer in zip(requests, answers, strict=True):
        if set(request.params) <= {"temperature", "logprobs"} and request.params["temperature"] == 0.0:
            window.checked += 1
            window.wrong += answer != continuation(request.prompt, request.count, VOCABULARY)
    return window


async def run_engine(folder: Path, decode_ms: float, cases: Sequence[Case]) -> tuple[list[Window], list[Span]]:
    """All cases of one decode time on one engine, after a first load that is not counted."""
    from vllm.v1.engine.async_llm import AsyncLLM

    spans = folder / f"spans-{decode_ms:g}"
    os.environ["TT_HOST_TIMELINE"] = str(spans)
    cost = DeviceCost(decode_ms=decode_ms, prefill_ms_per_token=PREFILL_MS)
    checkpoint = write_checkpoint(folder / f"model-{decode_ms:g}", vocab_size=VOCABULARY, max_len=LENGTH, cost=cost)
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**engine_arguments(checkpoint, folder / f"steps-{decode_ms:g}")))
    try:
        await serve(engine, requests_of(cases[0]))
        windows = [await serve(engine, requests_of(case)) for case in cases]
    finally:
        engine.shutdown()
    limit = time.monotonic() + 60
    while not spans.exists() and time.monotonic() < limit:
        await asyncio.sleep(0.1)
    return windows, read_spans(spans)


def arrived(spans: Sequence[Span], window: Window) -> float:
    """When the last prefill was over, in monotonic seconds: from then on nobody comes."""
    return max(s.end for s in spans if s.label == "prefill" and window.begin <= s.start < window.end)


@dataclass(frozen=True, slots=True)
class Gap:
    """Idle time of the device; kind: between which steps."""

    kind: str
    seconds: float


def gaps(spans: Sequence[Span], window: Window) -> list[Gap]:
    """Where the device waited. Spans without duration (read-backs) are nothing."""
    found: list[Gap] = []
    last = Span("start", window.begin, window.begin, window.begin)
    for span in spans:
        if not span.seconds or span.end <= window.begin or span.start >= window.end:
            continue
        found.append(Gap(f"{last.label} to {span.label}", max(0.0, span.start - last.end)))
        last = span
    return [*found, Gap(f"{last.label} to end", max(0.0, window.end - last.end))]


def gap_table(spans: Sequence[Span], windows: dict[str, Window]) -> Iterator[str]:
    yield "| load | between | times | idle, ms each (median) | idle, % of the time |"
    yield "|---|---|---|---|---|"
    for name, window in windows.items():
        by_kind: dict[str, list[float]] = defaultdict(list)
        for gap in gaps(spans, window):
            by_kind[gap.kind].append(gap.seconds)
        for kind, seconds in sorted(by_kind.items(), key=lambda item: -sum(item[1])):
            share = 100 * sum(seconds) / (window.end - window.begin)
            waits = [s for s in seconds if s > 20e-6]
            median = f"{1e3 * statistics.median(waits):.2f}" if waits else "0"
            yield f"| {name} | {kind} | {len(waits)} of {len(seconds)} | {median} | {share:.2f} |"


# The report

BOUNDS = """
## What bounds it

* start to prefill: vLLM's front end takes in 128 requests, and the engine the first of them.
* prefill to decode: the decode step after a prefill takes its tokens from the host. Between the two lie the answer's
  way through a thread, its tokens, the step's inputs and the submit: small Python and small tensors, with cold caches.
* prefill to prefill: the second call's arguments. A prefill call blocks, so its preparation cannot overlap the first.
* decode to decode, with logprobs: one request that asks moves the step to the host. Before the next step can be
  submitted, the host must read the logits of all rows (6.3 MB here) for their best tokens. The logprobs are worked out
  later. With 5 ms steps the rest of the engine's work for a step hardly fits beside one.
"""


def busy_table(windows: dict[Case, Window], spans: dict[float, list[Span]]) -> Iterator[str]:
    yield "| load | decode step, ms | busy, % | goal | met | incumbent | exact |"
    yield "|---|---|---|---|---|---|---|"
    for case, window in windows.items():
        share = 100 * busy_share(spans[case.decode_ms], window.begin, window.end)
        met = "yes" if share >= case.goal else "no"
        exact = f"{window.checked - window.wrong} of {window.checked}"
        yield (
            f"| {case.name} | {case.decode_ms:g} | {share:.2f} | >= {case.goal} | {met} | {case.incumbent} | {exact} |"
        )


def report(cases: Sequence[Case], steps: int) -> Iterator[str]:
    """The report, line by line, as it is measured."""
    yield "# Overlap: how busy the engine keeps the device"
    yield ""
    yield f"Written by `benchmarks/overlap.py`. vLLM {vllm.__version__}: AsyncLLM with its EngineCore in a process of"
    yield "its own, as `vllm serve` has it; asynchronous scheduling; one synthetic N150; sampling on the device where"
    yield f"it can. {ROWS} rows, vocabulary {VOCABULARY:,}, {PREFILL_MS} ms of prefill a token; 128 requests at once,"
    yield "prompts of 16 to 256 tokens, outputs of 20 to 200; steady: 32 requests of 64 and 400. Busy: the share of the"
    yield "time from the first submit to the last result that steps take on the mesh's timeline; of the steady batch,"
    yield "from the end of the last prefill. Exact: greedy answers as the model gives them alone. One load warms up."
    yield "The processes' memory was kept from the host of a virtual machine, which takes back what nobody touches for"
    yield f"a second or two (tools/resident.py). {platform.machine()}, {os.cpu_count()} cores."
    with tempfile.TemporaryDirectory(prefix="overlap-") as name:
        folder = Path(name)
        windows: dict[Case, Window] = {}
        spans: dict[float, list[Span]] = {}
        for decode_ms in sorted({case.decode_ms for case in cases}, reverse=True):
            own = [case for case in cases if case.decode_ms == decode_ms]
            found, spans[decode_ms] = asyncio.run(run_engine(folder, decode_ms, own))
            for case, window in zip(own, found, strict=True):
                if case.steady:
                    window.begin = arrived(spans[decode_ms], window)
            windows |= dict(zip(own, found, strict=True))
        yield from ("", "## Device-busy share of the time", "")
        yield from busy_table(windows, spans)
        for decode_ms, own in spans.items():
            names = {case.name: window for case, window in windows.items() if case.decode_ms == decode_ms}
            yield from ("", f"## Where the device waited, {decode_ms:g} ms steps", "")
            yield from gap_table(own, names)
        yield from ("", *BOUNDS.strip("\n").splitlines())
        if steps:
            yield from host_table(host_cost(folder, steps), steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, help="write the report to this Markdown file as well")
    parser.add_argument("--only", help="cases whose name contains this; `host` measures the host's cost alone")
    parser.add_argument("--decode-ms", type=float, help="cases of this decode time only")
    parser.add_argument("--steps", type=int, default=1000, help="steady steps for the host's cost, 0 to leave it out")
    arguments = parser.parse_args()
    cases = [case for case in CASES if (arguments.only or "") in case.name]
    cases = [case for case in cases if arguments.decode_ms in (None, case.decode_ms)]
    neighbours = Neighbours()
    lines: list[str] = []
    with resident():
        for line in report(cases, arguments.steps):
            print(line, flush=True)
            lines.append(line)
    lines += ["", neighbours.verdict()]
    print(lines[-1])
    if arguments.report is not None:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
