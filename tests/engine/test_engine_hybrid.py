"""Sliding windows in vLLM's real engine: what of the KV cache a request takes, and one page table for all layers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
sys.path.insert(0, str(Path(__file__).parent))

from gemma3_family import FAMILY
from launch import Engine, Run, launched
from layered_checkpoints import VOCABULARY, write_gemma3
from served import DEVICE, USUAL, Answers, Served

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

CONTEXT, WINDOW, CHUNK = 32768, 1024, 2048
UNIFORM = Run({"disable_hybrid_kv_cache_manager": True})


def layer_blocks(checkpoint: Path, folder: Path, run: Run) -> tuple[int, int]:
    """Blocks that vLLM holds for one request of 32k tokens, times the layers that lie in a block: during the last chunk
    of its prompt, and in the decode step behind it.

    Only its scheduler runs: chunk by chunk it allocates and frees as it always does. No chunk is computed.
    """
    long = Run(
        {"max_model_len": CONTEXT, "max_num_seqs": 2, "max_num_batched_tokens": CHUNK, "skip_tokenizer_init": True},
        environ={"TT_HOST_MAX_TOKENS_ALL_USERS": str(2 * CONTEXT)},
    )
    with launched(run.over(long), checkpoint, folder) as engine:
        manager = engine.core.scheduler.kv_cache_manager
        free = manager.block_pool.get_num_free_blocks()
        layers = max(len(group.layer_names) for group in manager.kv_cache_config.kv_cache_groups)
        used = [free - manager.block_pool.get_num_free_blocks() for _ in scheduled(engine, CONTEXT - 2)]
        return used[-2] * layers, used[-1] * layers


def scheduled(engine: Engine, tokens: int) -> Iterator[None]:
    """Steps of one request with a prompt of so many tokens, each while it is in flight: all chunks and one decode."""
    from vllm import SamplingParams

    from tt_worker.step import StepResult
    from tt_worker.vllm.translate import runner_output

    params = SamplingParams(max_tokens=2, ignore_eos=True, detokenize=False)
    prompt = [3 + i % (VOCABULARY - 3) for i in range(tokens)]
    engine.engine.add_request("long", {"prompt_token_ids": prompt}, params)
    scheduler = engine.core.scheduler
    computed = 0
    while computed <= tokens:
        step = scheduler.schedule()
        yield
        ((name, count),) = step.num_scheduled_tokens.items()
        computed += count
        scheduler.update_from_output(step, runner_output(StepResult([name], [[7] if computed >= tokens else []])))


def test_engine_five_sliding_layers_to_one_take_a_quarter_of_the_cache_at_32k(tmp_path: Path) -> None:
    """Also while the last chunk is computed, when the sliding layers hold the window and the chunk."""
    checkpoint = tmp_path / "gemma3"
    write_gemma3(checkpoint, window=WINDOW, positions=CONTEXT)
    used: dict[str, tuple[int, int]] = {}
    for name, run in {"hybrid": Run(), "uniform": UNIFORM}.items():
        (tmp_path / name).mkdir()
        used[name] = layer_blocks(checkpoint, tmp_path / name, Run({"async_scheduling": False}).over(run))
    assert used["uniform"] == (6 * CONTEXT // 64, 6 * CONTEXT // 64)
    prefill, decode = used["hybrid"]
    assert prefill <= used["uniform"][0] / 4, used
    assert decode <= used["uniform"][1] / 5, used


def test_engine_a_model_with_windows_takes_one_page_table_for_all_layers(tmp_path: Path) -> None:
    """With vLLM's hybrid manager off nothing leaves a window: the layers' blocks are kept, and the answers the same."""
    write_gemma3(tmp_path)
    answers = Answers(FAMILY.reference(tmp_path))
    with launched(UNIFORM.over(DEVICE).over(USUAL), tmp_path, tmp_path) as engine:
        manager: Any = engine.core.scheduler.kv_cache_manager
        assert len(manager.kv_cache_config.kv_cache_groups) == 1
        assert Served(FAMILY, engine, answers).batch
