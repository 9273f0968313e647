"""The sampling parameter object (contract 1.8)."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from tt_hostmesh.sampling import MAX_TOP_K
from tt_hostmesh.strict.breach import Where

CLAUSE = "1.8"
FLOATS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
INTS = ("top_k",)
OPTIONAL_INTS = ("seed", "num_logprobs")
FIELDS = (*FLOATS, *INTS, *OPTIONAL_INTS, "enable_log_probs")


def check_parameters(where: Where, params: Any, rows: int) -> None:
    """Exactly the nine fields, lists of python scalars of length `rows`. Raises ContractError."""
    if not is_dataclass(params) or isinstance(params, type):
        raise where.breach(CLAUSE, f"sampling_params must be a dataclass object, not {type(params).__name__}")
    names = {field.name for field in fields(params)}
    if names != set(FIELDS):
        odd = sorted(names ^ set(FIELDS))
        raise where.breach(CLAUSE, f"sampling_params must have exactly the nine fields; wrong: {', '.join(odd)}")
    for name in FIELDS:
        _check_column(where, name, getattr(params, name), rows)


def check_abilities(where: Where, params: Any, rows: Iterable[int], top_logprobs: int = 0) -> None:
    """The device can do what `rows`, those that are sampled, ask for. Raises ContractError.

    top_logprobs: candidates whose logprobs it answers besides the sampled token's
    """
    for row in rows:
        _check_row(where, params, row, top_logprobs)


def penalised(params: Any, rows: Iterable[int]) -> bool:
    """Whether one of `rows` has a penalty that is not neutral."""
    return any(
        params.presence_penalty[row] or params.frequency_penalty[row] or params.repetition_penalty[row] not in (0, 1)
        for row in rows
    )


def snapshot(params: Any) -> list[tuple[object, ...]]:
    """The parameters by row, as values that compare."""
    columns: list[list[object]] = []
    rows = len(params.temperature)
    for name in FIELDS:
        value: Any = getattr(params, name)
        columns.append([*value] if isinstance(value, list) else [value] * rows)  # pyright: ignore[reportUnknownArgumentType]
    return list(zip(*columns, strict=True))


def _check_column(where: Where, name: str, value: Any, rows: int) -> None:
    if value is None and name in (*OPTIONAL_INTS[1:], "enable_log_probs"):
        return
    if not isinstance(value, list):
        raise where.breach(CLAUSE, f"sampling_params.{name} must be a python list, not {type(value).__name__}")
    column: list[Any] = [*value]  # pyright: ignore[reportUnknownArgumentType]
    if len(column) != rows:
        raise where.breach(CLAUSE, f"sampling_params.{name} has {len(column)} entries for {rows} rows")
    for row, item in enumerate(column):
        if not _allowed(name, item):
            raise where.breach(CLAUSE, f"sampling_params.{name}[{row}] is {item!r} ({type(item).__name__})")


def _allowed(name: str, item: Any) -> bool:
    if name in FLOATS:
        return type(item) in (float, int)
    if name in INTS:
        return type(item) is int
    if name in OPTIONAL_INTS:
        return item is None or type(item) is int
    return item is None or type(item) is bool


def _check_row(where: Where, params: Any, row: int, top_logprobs: int) -> None:
    stochastic = params.temperature[row] != 0
    top_k: int = params.top_k[row]
    if stochastic and not 1 <= top_k <= MAX_TOP_K:
        raise where.breach(
            CLAUSE, f"row {row} samples with top_k {top_k} on a device that holds 1..{MAX_TOP_K}: sample it on the host"
        )
    wanted: int = 0 if params.num_logprobs is None else params.num_logprobs[row] or 0
    if wanted > top_logprobs:
        given = f"the best {top_logprobs}" if top_logprobs else "the sampled token's only"
        raise where.breach(CLAUSE, f"row {row} wants {wanted} logprobs, this device gives {given}")
