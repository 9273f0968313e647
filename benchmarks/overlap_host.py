"""The host's own cost of a steady decode step: vLLM's engine core with this worker, and with one that does nothing."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TT_RUNTIME", "host")
os.environ.setdefault("TT_HOST_STRICT", "0")
os.environ.setdefault("MESH_DEVICE", "N150")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs

from tt_hostmesh.synthetic.checkpoint import write_checkpoint
from tt_hostmesh.synthetic.cost import DeviceCost

ROWS, BLOCK, LENGTH = 32, 64, 4096
BLOCK_STEPS = 100
GOAL = 1.15

RUNS = {
    "this one": ("auto", {"TT_MODEL_CLASS_OVERRIDES": "SyntheticForCausalLM=overlap_worker:InstantModel"}),
    "one that does nothing": ("overlap_worker.DoNothingWorker", {}),
    "this one, the software device computing in the same process": ("auto", {}),
}


def host_cost(folder: Path, steps: int) -> dict[str, float]:
    """Median milliseconds of a steady decode step without device time, by worker.

    The engines live side by side and run a block of steps each in turn, so that whatever else the machine does hits
    all of them.
    """
    checkpoint = write_checkpoint(folder / "free", max_len=LENGTH, cost=DeviceCost(decode_ms=0, prefill_ms_per_token=0))
    engines = {name: _start(str(checkpoint), worker, steps, environ) for name, (worker, environ) in RUNS.items()}
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(-1, steps // BLOCK_STEPS):
        for name, engine in engines.items():
            taken[name] += _block(engine)
    for engine in engines.values():
        engine.communicate()
    return {name: statistics.median(times[BLOCK_STEPS:]) for name, times in taken.items()}


def _start(checkpoint: str, worker: str, steps: int, environ: dict[str, str]) -> "subprocess.Popen[str]":
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    settings = {**os.environ, "PYTHONPATH": path, **environ}
    command = [sys.executable, __file__, checkpoint, worker, str(steps)]
    pipe = subprocess.PIPE
    engine = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=settings)
    _answer(engine)
    return engine


def _block(engine: "subprocess.Popen[str]") -> list[float]:
    if engine.stdin is None:
        raise RuntimeError("the engine was started without a way to ask it")
    engine.stdin.write("\n")
    engine.stdin.flush()
    return _answer(engine)


def _answer(engine: "subprocess.Popen[str]") -> list[float]:
    """The next line that is an answer; a library may print lines of its own."""
    for line in engine.stdout or ():
        if line.startswith("["):
            return json.loads(line)
    raise RuntimeError(f"an engine ended with {engine.wait()}: run {' '.join(map(str, engine.args))} to see why")


def serve_blocks(checkpoint: str, worker: str, steps: int) -> None:
    """An EngineCore in this process, 32 rows. Each line of the input asks for a block of steady steps; the answer is a
    line with their milliseconds."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor
    from vllm.v1.request import Request as CoreRequest

    config = AsyncEngineArgs(
        model=checkpoint,
        skip_tokenizer_init=True,
        max_model_len=LENGTH,
        max_num_seqs=ROWS,
        block_size=BLOCK,
        worker_cls=worker,
        additional_config={"tt": {"sample_on_device_mode": "all"}},
    ).create_engine_config()
    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK, sha256)
    engine = EngineCore(config, Executor.get_class(config), log_stats=False)
    for row in range(ROWS):
        params = SamplingParams(temperature=0.0, max_tokens=steps + 3 * BLOCK_STEPS, ignore_eos=True)
        prompt = [row * 7 + i for i in range(32)]
        engine.add_request(CoreRequest(f"r{row}", prompt, params, None, arrival_time=0.0, block_hasher=hasher))
    print("[]", flush=True)
    for _ in sys.stdin:
        print(json.dumps([_step(engine) for _ in range(BLOCK_STEPS)]), flush=True)
    engine.shutdown()


def _step(engine: Any) -> float:
    begin = time.perf_counter()
    outputs, _ = engine.step_fn()
    while not outputs:
        outputs, _ = engine.step_fn()
    return 1e3 * (time.perf_counter() - begin)


def host_table(medians: dict[str, float], steps: int) -> Iterator[str]:
    nothing = medians["one that does nothing"]
    yield from ("", "## The host's cost of a steady step", "")
    yield f"EngineCore in one process, {ROWS} rows, device time 0, median of {steps} steps each, taken in turns."
    yield f"Goal for this worker: <= {GOAL} times the one that does nothing."
    yield from ("", "| worker | ms a step | ratio |", "|---|---|---|")
    for name, ms in medians.items():
        yield f"| {name} | {ms:.3f} | {ms / nothing:.2f} |"


if __name__ == "__main__":
    serve_blocks(sys.argv[1], sys.argv[2], int(sys.argv[3]))
