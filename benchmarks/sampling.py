"""The host sampler against vLLM's `Sampler`, call by call in one process.

    nox -s bench -- sampling

Both get the same float32 logits of 32 rows and turn them into a list of tokens. They take turns of ten calls, so that
whatever else the machine does hits both; the figures are medians of 50 calls after 5, and one more that is not counted
after each change: it would pay for what the other left in the cache. The report has a table for each way that idle
threads may wait. `--cpu-time` counts the CPU time of a single thread instead: on a busy machine its
ratios say more than those of the clock.
"""

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TT_RUNTIME", "host")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch
import vllm
from _quiet import Neighbours
from torch import Tensor
from vllm.config import DeviceConfig, VllmConfig
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler

from tt_sampling.vllm.host import Grammar, HostSampling
from tt_sampling.vllm.processors import load_processors

ROWS = 32
VOCABULARIES = (49_152, 128_256)
CALLS, WARM_UP, TURN = 50, 5, 10
PROMPT, OUTPUT = 2_000, 200
REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "sampling.md"


@dataclass(frozen=True, slots=True)
class Case:
    """One batch. `params` makes the parameters of a row;  goal: how many times faster than vLLM's sampler."""

    name: str
    goal: float
    params: Callable[[int], SamplingParams]


def greedy(**more: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=None, **more)


def nucleus(**more: object) -> SamplingParams:
    return SamplingParams(temperature=0.7, top_p=0.9, top_k=50, max_tokens=None, **more)


PENALTIES = {"presence_penalty": 0.3, "frequency_penalty": 0.2, "repetition_penalty": 1.1}


def mixed(row: int) -> SamplingParams:
    """8 greedy, 8 top-p/top-k, 8 with penalties, 4 with logprobs=5, 4 with a grammar mask."""
    if row < 8:
        return greedy()
    if row < 16:
        return nucleus()
    if row < 24:
        return greedy(**PENALTIES)
    if row < 28:
        return greedy(logprobs=5)
    return greedy(structured_outputs=StructuredOutputsParams(regex="a+"))


CASES = (
    Case("all greedy", 1, lambda row: greedy()),
    Case("greedy, 2 of 32 rows with logprobs=1", 7, lambda row: greedy(logprobs=1 if row < 2 else None)),
    Case("temperature 0.7, top_p 0.9, top_k 50", 40, lambda row: nucleus()),
    Case("temperature 0.7 alone", 5, lambda row: SamplingParams(temperature=0.7, max_tokens=None)),
    Case("greedy with penalties, 2,000-token prompts, 200-token outputs", 5, lambda row: greedy(**PENALTIES)),
    Case("mixed: greedy, top-p/top-k, penalties, logprobs=5, grammar", 10, mixed),
    Case("temperature 0.7, top_p 0.9 (no goal)", 0, lambda row: SamplingParams(temperature=0.7, top_p=0.9)),
)


class Batch:
    """The requests of a case, for both samplers."""

    def __init__(self, case: Case, vocab: int) -> None:
        chance = random.Random(vocab)
        self.vocab = vocab
        self.params = [case.params(row) for row in range(ROWS)]
        self.prompts = [[chance.randrange(vocab) for _ in range(PROMPT)] for _ in range(ROWS)]
        self.outputs = [[chance.randrange(vocab) for _ in range(OUTPUT)] for _ in range(ROWS)]
        self.masked = [row for row, params in enumerate(self.params) if params.structured_outputs is not None]
        words = np.random.default_rng(0).integers(-(2**31), 2**31, (len(self.masked), vocab // 32), dtype=np.int32)
        self.bitmask = words


def ours(batch: Batch, config: VllmConfig) -> Callable[[Tensor], list[int]]:
    """Our route, with its own copy of the outputs, which grow by a token a call."""
    sampler = HostSampling(config, ROWS, batch.vocab)
    outputs = [list(output) for output in batch.outputs]
    for row in range(ROWS):
        sampler.admit(row, batch.params[row], batch.prompts[row], outputs[row])
    rows = list(range(ROWS))
    grammar = Grammar(batch.bitmask, {row: i for i, row in enumerate(batch.masked)}) if batch.masked else None

    def call(logits: Tensor) -> list[int]:
        tokens = sampler.sample(logits, rows, grammar=grammar).token_ids
        for output, token in zip(outputs, tokens, strict=True):
            output.append(token)
        return tokens

    return call


def theirs(batch: Batch, config: VllmConfig) -> Callable[[Tensor], list[int]]:
    """vLLM's route: metadata made once, as its input batch keeps it, and xgrammar's mask kernel."""
    sampler = Sampler()
    metadata = metadata_of(batch, config)

    def call(logits: Tensor) -> list[int]:
        if batch.masked:
            import xgrammar

            words = torch.full((ROWS, batch.vocab // 32), -1, dtype=torch.int32)
            words[batch.masked] = torch.from_numpy(batch.bitmask)
            xgrammar.apply_token_bitmask_inplace(logits, words, indices=batch.masked)
        output = sampler(logits, metadata)
        if output.logprobs_tensors is not None:
            output.logprobs_tensors.tolists()
        tokens = output.sampled_token_ids.flatten().tolist()
        for past, token in zip(metadata.output_token_ids, tokens, strict=True):
            past.append(token)
        return tokens

    return call


def metadata_of(batch: Batch, config: VllmConfig) -> SamplingMetadata:
    def column(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor([getattr(params, name) for params in batch.params], dtype=dtype)

    random_rows = [params.temperature > 0.0 for params in batch.params]
    logprobs = [params.logprobs for params in batch.params if params.logprobs is not None]
    top_k = column("top_k", torch.int32)
    penalised = any(params.repetition_penalty != 1.0 for params in batch.params)
    return SamplingMetadata(
        temperature=column("temperature") if any(random_rows) else None,
        all_greedy=not any(random_rows),
        all_random=all(random_rows),
        top_p=column("top_p") if any(params.top_p < 1.0 for params in batch.params) else None,
        top_k=top_k.masked_fill(top_k <= 0, batch.vocab) if bool((top_k > 0).any()) else None,
        generators={},
        max_num_logprobs=max(logprobs, default=None),
        no_penalties=not penalised,
        prompt_token_ids=torch.tensor(batch.prompts) if penalised else None,
        frequency_penalties=column("frequency_penalty"),
        presence_penalties=column("presence_penalty"),
        repetition_penalties=column("repetition_penalty"),
        output_token_ids=[list(output) for output in batch.outputs],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(load_processors(config, False)),
    )


def measure(case: Case, vocab: int, config: VllmConfig, clock: Callable[[], float]) -> tuple[float, float]:
    """Median milliseconds of a call: vLLM's, ours."""
    batch = Batch(case, vocab)
    calls = (theirs(batch, config), ours(batch, config))
    logits = torch.randn(ROWS, vocab, generator=torch.Generator().manual_seed(1)) * 3
    buffer = torch.empty_like(logits)
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in [WARM_UP, *[TURN] * (CALLS // TURN)]:
        for call, times in zip(calls, taken, strict=True):
            for counted in range(-1, turn):
                buffer.copy_(logits)
                start = clock()
                call(buffer)
                if counted >= 0:
                    times.append((clock() - start) * 1e3)
    return statistics.median(taken[0][WARM_UP:]), statistics.median(taken[1][WARM_UP:])


def tables(vocabularies: tuple[int, ...], cpu_time: bool) -> Iterator[str]:
    """The figures of this process, line by line, as they are measured."""
    config = VllmConfig(device_config=DeviceConfig("cpu"))
    clock = time.process_time if cpu_time else time.perf_counter
    for vocab in vocabularies:
        yield ""
        yield f"### {ROWS} x {vocab:,} float32"
        yield ""
        yield "| batch | vLLM, ms | ours, ms | times faster | goal | met |"
        yield "|---|---|---|---|---|---|"
        for case in CASES:
            before, after = measure(case, vocab, config, clock)
            ratio = before / after
            met = "yes" if ratio >= case.goal else "no"
            goal = f">= {case.goal:g}" if case.goal else "none"
            yield f"| {case.name} | {before:.2f} | {after:.2f} | {ratio:.1f} | {goal} | {met} |"


def head(cpu_time: bool) -> Iterator[str]:
    """What was measured, on what."""
    yield "# Host sampling: ours against vLLM's sampler"
    yield ""
    yield "Written by `nox -s bench -- sampling`. Medians of 50 calls after 5, the two in turns of ten in one process."
    yield (
        f"vLLM {vllm.__version__}, torch {torch.__version__} with {torch.get_num_threads()} threads, "
        f"{platform.machine()}, {os.cpu_count()} cores."
    )
    yield ""
    if cpu_time:
        yield "CPU time of a single thread, not time by the clock."


POLICIES = {
    "passive": "Idle threads sleep: OMP_WAIT_POLICY=passive, as the plugin's worker runs",
    "default": "Idle threads spin: torch's default",
}


def in_another_process(policy: str, arguments: list[str]) -> Iterator[str]:
    """The tables under a wait policy. OpenMP reads it when a process starts, and never again."""
    environ = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy != "default":
        environ["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, __file__, "--tables-only", *arguments]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith(("|", "#", "\n")):
                yield line.rstrip("\n")
    if process.returncode:
        raise SystemExit(f"the benchmark ended with {process.returncode}")


def whole_report(arguments: list[str], cpu_time: bool) -> Iterator[str]:
    """Head and tables. A single thread never waits for another, so its CPU time needs one table only."""
    yield from head(cpu_time)
    for policy in ["passive"] if cpu_time else POLICIES:
        yield ""
        yield f"## {POLICIES[policy]}"
        yield from in_another_process(policy, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, default=REPORT, help="the Markdown file to write")
    parser.add_argument("--vocabulary", type=int, action="append", help="a vocabulary size instead of the two")
    parser.add_argument("--cpu-time", action="store_true", help="count CPU time on one thread; writes no report")
    parser.add_argument("--tables-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cpu_time:
        torch.set_num_threads(1)
    if arguments.tables_only:
        for line in tables(tuple(arguments.vocabulary or VOCABULARIES), arguments.cpu_time):
            print(line, flush=True)
        return
    neighbours = Neighbours()
    passed = [f"--vocabulary={size}" for size in arguments.vocabulary or ()]
    lines: list[str] = []
    for line in whole_report(passed + ["--cpu-time"] * arguments.cpu_time, arguments.cpu_time):
        print(line, flush=True)
        lines.append(line)
    lines += ["", neighbours.verdict()]
    print(lines[-1])
    if not arguments.cpu_time:
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
