"""An engine that fails while it starts, in this process: its mesh is closed once, and the next engine starts."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parent))

from launch import Run, launched
from tiny import save_llama, write_bundle

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

USUAL = Run({"max_model_len": 256, "max_num_seqs": 2, "skip_tokenizer_init": True})

MODEL = """
from tt_hostmesh.llama.generator import LlamaForCausalLM


class Model(LlamaForCausalLM):
    {decorator}
    def {method}(self, *args, **keywords):
        raise OSError("{method} failed")
"""
SCHEDULER = """
from tt_scheduler.vllm.scheduler import TTScheduler


class Scheduler(TTScheduler):
    def __init__(self, *args, **keywords):
        raise OSError("the scheduler failed")
"""


def fails_in(method: str, decorator: str = "") -> str:
    return MODEL.format(method=method, decorator=decorator)


MODELS = {
    "the model cannot be loaded": fails_in("initialize_vllm_model", "@classmethod"),
    "the model says no number of tokens": fails_in("get_max_tokens_all_users", "@classmethod"),
    "the cache cannot be allocated": fails_in("allocate_kv_cache"),
    "the model cannot be warmed up": fails_in("warmup_model_decode"),
}
BETWEEN_CALLS = {
    "the cache is too small for a sequence": (Run(environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "64"}), "KV cache"),
    "the scheduler fails": (Run({"scheduler_cls": "failing_scheduler.Scheduler"}), "the scheduler failed"),
}
"""vLLM fails, and no call of the worker: it is not told."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny-llama"), vocab_size=320)


@contextmanager
def counted_closings() -> Iterator[list[str]]:
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return True

    log = logging.getLogger("vllm.tt.lifecycle")
    log.addFilter(keep)
    try:
        yield said
    finally:
        log.removeFilter(keep)


def start(run: Run, checkpoint: Path, folder: Path) -> None:
    with launched(run.over(USUAL), checkpoint, folder):
        pass


def failure(run: Run, checkpoint: Path, folder: Path) -> str:
    """What a start says that fails. Nothing of it is kept."""
    with pytest.raises((OSError, ValueError)) as kept:
        start(run, checkpoint, folder)
    return str(kept.value)


def closed_once(said: list[str]) -> bool:
    from tt_hostmesh import open_mesh_count

    opened = [line for line in said if line.startswith("Attempting to open mesh device")]
    return open_mesh_count() == 0 and len(opened) == 1 == said.count("Closed the device mesh")


@pytest.mark.parametrize("what", MODELS)
def test_engine_a_start_that_fails_in_the_worker_closes_the_mesh_at_once(
    what: str, checkpoint: Path, tmp_path: Path
) -> None:
    """Before the error leaves the worker: whoever keeps it keeps no mesh. Fails when the worker lets an error of its
    start pass."""
    bundle = write_bundle(tmp_path / "bundles", "failing_" + "_".join(what.split()), MODELS[what])
    with counted_closings() as said, pytest.raises(OSError, match=r" failed$") as kept:
        start(Run(environ=bundle), checkpoint, tmp_path)
    assert kept.traceback
    assert closed_once(said), said


@pytest.mark.parametrize("what", BETWEEN_CALLS)
def test_engine_a_start_that_fails_outside_the_worker_closes_the_mesh_with_the_engine(
    what: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody calls the worker any more. Fails when the mesh does not go with the worker: the next engine cannot open
    it."""
    (tmp_path / "failing_scheduler.py").write_text(SCHEDULER)
    monkeypatch.syspath_prepend(str(tmp_path))
    run, says = BETWEEN_CALLS[what]
    with counted_closings() as said:
        assert says in failure(run, checkpoint, tmp_path)
        gc.collect()
        assert closed_once(said), said
    with launched(USUAL, checkpoint, tmp_path) as engine:
        from vllm import SamplingParams

        (output,) = engine.generate([[5, 6, 7]], [SamplingParams(temperature=0, max_tokens=3, detokenize=False)])
        assert len(output.outputs[0].token_ids) == 3
