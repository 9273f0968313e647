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

os.environ.setdefault("TT_RUNTIME", "host")
os.environ.setdefault("TT_HOST_STRICT", "0")
os.environ.setdefault("MESH_DEVICE", "N150")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs

from tt_hostmesh.synthetic.checkpoint import write_checkpoint
from tt_hostmesh.synthetic.cost import DeviceCost

ROWS, BLOCK, LENGTH = 32, 64, 4096
GOAL = 1.15

RUNS = {
    "this one": ("auto", {"TT_MODEL_CLASS_OVERRIDES": "SyntheticForCausalLM=overlap_worker:InstantModel"}),
    "one that does nothing": ("overlap_worker.DoNothingWorker", {}),
    "this one, the software device computing in the same process": ("auto", {}),
}


def host_cost(folder: Path, steps: int) -> dict[str, float]:
    """Median milliseconds of a steady decode step without device time, by worker. The runs take turns."""
    checkpoint = write_checkpoint(folder / "free", max_len=LENGTH, cost=DeviceCost(decode_ms=0, prefill_ms_per_token=0))
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(2):
        for name, (worker, environ) in RUNS.items():
            command = [sys.executable, __file__, str(checkpoint), worker, str(steps)]
            path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
            settings = {**os.environ, "PYTHONPATH": path, **environ}
            answer = subprocess.run(command, check=True, capture_output=True, text=True, env=settings)
            taken[name] += json.loads(answer.stdout.splitlines()[-1])
    return {name: statistics.median(times) for name, times in taken.items()}


def step_times(checkpoint: str, worker: str, steps: int) -> list[float]:
    """Milliseconds of each of `steps` steady steps of an EngineCore in this process, 32 rows."""
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
        params = SamplingParams(temperature=0.0, max_tokens=steps + 100, ignore_eos=True)
        prompt = [row * 7 + i for i in range(32)]
        engine.add_request(CoreRequest(f"r{row}", prompt, params, None, arrival_time=0.0, block_hasher=hasher))
    times: list[float] = []
    while len(times) < steps + 50:
        begin = time.perf_counter()
        outputs, _ = engine.step_fn()
        while not outputs:
            outputs, _ = engine.step_fn()
        times.append(1e3 * (time.perf_counter() - begin))
    engine.shutdown()
    return times[50:]


def host_table(medians: dict[str, float], steps: int) -> Iterator[str]:
    nothing = medians["one that does nothing"]
    yield from ("", "## The host's cost of a steady step", "")
    yield f"EngineCore in one process, {ROWS} rows, device time 0, median of {2 * steps} steps each."
    yield f"Goal for this worker: <= {GOAL} times the one that does nothing."
    yield from ("", "| worker | ms a step | ratio |", "|---|---|---|")
    for name, ms in medians.items():
        yield f"| {name} | {ms:.3f} | {ms / nothing:.2f} |"


if __name__ == "__main__":
    print(json.dumps(step_times(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
