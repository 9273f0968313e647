"""Checks of single arguments: type, dtype, shape, range."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from tt_hostmesh.adapter.arguments import DecodeArguments, PrefillArguments
from tt_hostmesh.strict.breach import Where

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def int32_tensor(where: Where, clause: str, name: str, value: Any, shape: Sequence[int | None]) -> Ints:
    """`value` as int64 array, checked to be a torch int32 CPU tensor of `shape` (None = any size).

    The array is a copy. Raises ContractError otherwise.
    """
    if not isinstance(value, torch.Tensor):
        raise where.breach(clause, f"{name} must be a torch tensor, not {type(value).__name__}")
    if value.device.type != "cpu":
        raise where.breach(clause, f"{name} must be on the host, it is on {value.device}")
    if value.dtype != torch.int32:
        raise where.breach(clause, f"{name} must be int32, not {str(value.dtype).removeprefix('torch.')}")
    fits = len(shape) == value.dim() and all(w in (None, g) for w, g in zip(shape, value.shape, strict=True))
    if not fits:
        wanted = ", ".join("*" if size is None else str(size) for size in shape)
        raise where.breach(clause, f"{name} must have shape [{wanted}], not {list(value.shape)}")
    return value.numpy().astype(np.int64)


def int_sequence(where: Where, clause: str, name: str, value: Any, length: int) -> list[int]:
    """`value` as list of ints; a list of ints, an integer numpy array or an integer torch tensor of `length`."""
    listed: list[Any]
    if isinstance(value, torch.Tensor):
        integer, listed = not value.is_floating_point() and value.dtype != torch.bool, cast("list[Any]", value.tolist())
    elif isinstance(value, np.ndarray):
        integer, listed = value.dtype.kind in "iu", value.tolist()
    elif isinstance(value, list):
        listed = [*value]  # pyright: ignore[reportUnknownArgumentType]
        integer = all(type(item) is int for item in listed)
    else:
        raise where.breach(clause, f"{name} must be a list, numpy array or tensor, not {type(value).__name__}")
    if not integer:
        raise where.breach(clause, f"{name} must hold integers, one a row")
    if len(listed) != length:
        raise where.breach(clause, f"{name} has {len(listed)} entries for {length} rows")
    return listed


def token_ids(where: Where, clause: str, name: str, ids: Ints, vocab_size: int) -> None:
    """Every id lies in the vocabulary. Raises ContractError naming the first that does not."""
    wrong = (ids < 0) | (ids >= vocab_size)
    if wrong.any():
        raise where.breach(clause, f"{name} holds the token id {ids[wrong][0]}, the vocabulary has {vocab_size}")


def no_unknown(where: Where, clause: str, arguments: PrefillArguments | DecodeArguments) -> None:
    """No keyword is left over. Raises ContractError naming those that are."""
    if arguments.unknown:
        own = ("unknown", "images", "rope_deltas", "page_tables_per_layer", "layers")
        known = [field.name for field in fields(arguments) if field.name not in own]
        raise where.breach(
            clause, f"unknown keyword {', '.join(sorted(arguments.unknown))}: allowed are {', '.join(known)}"
        )


def flag(where: Where, clause: str, name: str, value: object) -> bool:
    """`value`, checked to be a bool."""
    if not isinstance(value, bool):
        raise where.breach(clause, f"{name} must be True or False, not {value!r}")
    return value
