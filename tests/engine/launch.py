"""vLLM's engine in this process, on the strict software mesh: started, asked, and ended."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HOST = {
    "TT_RUNTIME": "host",
    "TT_HOST_STRICT": "1",
    "TT_HOST_MAX_TOKENS_ALL_USERS": "8192",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Run:
    """One way of running requests: engine arguments, options under `tt`, variables."""

    engine: Mapping[str, Any] = field(default_factory=dict)
    tt: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: Run) -> Run:
        """This one, and what it does not say from `other`."""
        return Run({**other.engine, **self.engine}, {**other.tt, **self.tt}, {**other.environ, **self.environ})


class Engine:
    """A running engine. `steps` reads what the step log says of the steps so far."""

    def __init__(self, engine: Any, log: Path) -> None:
        self.engine = engine
        self._log = log
        self._asked = 0

    @property
    def config(self) -> Any:
        """VllmConfig as the rules left it."""
        return self.engine.vllm_config

    @property
    def core(self) -> Any:
        return self.engine.engine_core.engine_core

    @property
    def worker(self) -> Any:
        return self.core.model_executor.driver_worker.worker

    def steps(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line for line in lines if "phase" in line]

    def metric(self, name: str) -> float:
        """The sum of a counter or gauge of vLLM."""
        return sum(metric.value for metric in self.engine.get_metrics() if metric.name == name)

    def generate(self, prompts: Sequence[Any], params: Sequence[Any]) -> list[Any]:
        """All of them at once; the outputs in their order. `prompts` as vLLM takes them, or lists of token ids."""
        ids = []
        for prompt, one in zip(prompts, params, strict=True):
            given = {"prompt_token_ids": prompt} if isinstance(prompt, list) else prompt
            ids.append(self.engine.add_request(f"asked-{self._asked}", given, one))
            self._asked += 1
        done: dict[str, Any] = {}
        while self.engine.has_unfinished_requests():
            done.update({output.request_id: output for output in self.engine.step() if output.finished})
        return [done[f"asked-{self._asked - len(ids) + i}"] for i in range(len(ids))]


@contextmanager
def launched(run: Run, checkpoint: Path, folder: Path) -> Iterator[Engine]:
    """An engine that serves `checkpoint` until the end of the block. `folder` takes its step log."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**HOST, **run.environ}.items():
            patch.setenv(name, value)
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        log = folder / "steps.jsonl"
        arguments = EngineArgs(
            model=str(checkpoint),
            disable_log_stats=False,
            additional_config={"tt": {**run.tt, "step_log": str(log)}},
            **run.engine,
        )
        engine = LLMEngine.from_engine_args(arguments)
        try:
            yield Engine(engine, log)
        finally:
            shut_down(engine)
            del engine
            gc.collect()


def shut_down(engine: Any) -> None:
    """End it. With the mesh in another process vLLM's last step in this one asks torch for an accelerator."""
    if engine.vllm_config.parallel_config.distributed_executor_backend != "mp":
        engine.engine_core.shutdown()
        return
    with pytest.raises(RuntimeError, match="accelerator"):
        engine.engine_core.shutdown()
