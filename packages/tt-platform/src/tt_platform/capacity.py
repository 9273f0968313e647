"""How many rows and KV blocks the device holds, and whether a context length fits them.

A Tenstorrent device is not profiled: the model class declares a token budget for all users, and the block count
follows from it. Sources: tt-metal contract 1.3 and "max_model_len And KV Cache Capacity" of the reference README.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

logger = logging.getLogger("vllm.tt.capacity")

DEFAULT_MAX_TOKENS_ALL_USERS = 131_072
SLIDING_WINDOW_HEADROOM = 8  # windows a user of a hybrid model may hold at once
_HOOK = "get_max_tokens_all_users"


class CapacityError(ValueError):
    """The requested context length does not fit the KV cache, or a model's budget is no positive number."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What the model's budget hook is told. ``max_num_seqs`` counts the sequences of one lane."""

    model_name: str
    num_devices: int
    tt_data_parallel: int
    max_model_len: int
    max_num_seqs: int


def tokens_all_users(model_class: object, serving: Serving) -> int:
    """The KV token budget of one lane's cache, from the model class's hook.

    A class without the hook gets :data:`DEFAULT_MAX_TOKENS_ALL_USERS`, with a warning. An error inside the hook,
    AttributeError included, is the hook's and leaves as it is.

    Raises:
        CapacityError: the hook returned no positive integer.
    """
    hook = cast("Callable[..., Any] | None", getattr(model_class, _HOOK, None))
    name = getattr(model_class, "__name__", type(model_class).__name__)
    if hook is None:
        logger.warning(
            "Setting max_tokens_all_users=%d using rules in tt_platform.capacity: %s has no %s hook",
            DEFAULT_MAX_TOKENS_ALL_USERS,
            name,
            _HOOK,
        )
        return DEFAULT_MAX_TOKENS_ALL_USERS
    tokens = hook(
        model_name=serving.model_name,
        num_devices=serving.num_devices,
        tt_data_parallel=serving.tt_data_parallel,
        max_model_len=serving.max_model_len,
        max_num_seqs=serving.max_num_seqs,
    )
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise CapacityError(f"{name}.{_HOOK} returned {tokens!r}: allowed a number of tokens, at least 1")
    logger.info("Getting max_tokens_all_users=%d from generator %s", tokens, name)
    return tokens


def kv_blocks(tokens: int, block_size: int, lane_seqs: int, sliding_window: int | None = None) -> int:
    """Number of KV blocks of one lane's cache.

    Args:
        tokens: budget of all users of the lane, in tokens.
        block_size: tokens in a block.
        lane_seqs: sequences of the lane; each may waste the tail of one block.
        sliding_window: window in tokens of a model whose KV cache groups are hybrid; None or 0 for every other model.
    """
    headroom = block_size * lane_seqs + (sliding_window or 0) * lane_seqs * SLIDING_WINDOW_HEADROOM
    return -(-(tokens + headroom) // block_size)


def rows_for(sequences: int, batch_sizes: Sequence[int]) -> int:
    """Rows that hold `sequences`: the smallest batch size of the model that does.

    The number itself where the model names no sizes, or none that is large enough: then the model says so when it is
    loaded. Source: tt-metal contract 1.6 and 7.
    """
    return min((size for size in batch_sizes if size >= sequences), default=sequences)


@dataclass(frozen=True, slots=True)
class Published:
    """One block count in the two forms that vLLM reads.

    Attributes:
        num_gpu_blocks_override: for the worker's ``cache_config``.
        available_bytes: for the engine's planner, which divides by the bytes of a block; in standard data parallel it
            runs in another process than the worker and sees only this.
    """

    num_gpu_blocks_override: int
    available_bytes: int


def publish(blocks: int, bytes_per_block: int) -> Published:
    """Both forms of ``blocks``. ``bytes_per_block`` counts all layers that the planner counts."""
    return Published(blocks, blocks * bytes_per_block)


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """How a context length meets the pool. ``concurrency`` is full-length requests that fit at once."""

    max_model_len: int
    concurrency: float
    message: str


def plan_context(requested: int | None, derived: int, pool_tokens: int) -> ContextPlan:
    """Decide ``max_model_len`` against the pool. An explicit value is never made smaller.

    Args:
        requested: ``--max-model-len``; -1 fits it to the pool, None takes ``derived``.
        derived: the length from the checkpoint's configuration.
        pool_tokens: tokens that the KV blocks of one lane hold.

    Raises:
        CapacityError: the length exceeds the pool and the operator did not ask for -1.
    """
    if requested == -1:
        fitted = min(derived, pool_tokens)
        return _plan(fitted, pool_tokens, f"--max-model-len -1 is fitted to {fitted} tokens")
    length = derived if requested is None else requested
    if length > pool_tokens:
        origin = "the checkpoint's max_model_len" if requested is None else "--max-model-len"
        raise CapacityError(
            f"{origin} {length} does not fit the KV cache: allowed at most {pool_tokens} tokens; pass "
            f"--max-model-len {pool_tokens} or less, pass -1 to fit it, or raise the model's max_tokens_all_users"
        )
    return _plan(length, pool_tokens, f"max_model_len {length} fits the KV cache")


def _plan(length: int, pool_tokens: int, message: str) -> ContextPlan:
    concurrency = pool_tokens / length
    return ContextPlan(length, concurrency, f"{message}: {concurrency:.2f} requests of full length at once")
