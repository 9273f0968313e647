"""The device sampler's parameters: one row per request, changed only when a request comes or goes."""

from collections.abc import Sequence
from dataclasses import dataclass

from tt_sampling.parameters import RowSampling, TTSamplingParams
from tt_sampling.seeds import signed64

NO_LOGPROBS = -2


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One row in the device's terms."""

    temperature: float
    top_k: int
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int | None
    num_logprobs: int

    @property
    def penalised(self) -> bool:
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0


PADDING = DeviceRow(
    temperature=0.0,
    top_k=1,
    top_p=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    repetition_penalty=1.0,
    seed=None,
    num_logprobs=NO_LOGPROBS,
)
"""A row without a request: greedy, neutral. Source: tt-metal contract 1.8."""


def device_row(row: RowSampling, vocab_size: int) -> DeviceRow:
    """A request in the device's terms. Source: tt-metal contract 1.8.

    A greedy row and a row with top_k 1 both get top_k 1 and top_p 0: with more candidates or a wider nucleus some
    device samplers draw among ties. The temperature stays as asked: 1/T is the model's business.
    """
    top_k = row.top_k if 0 < row.top_k < vocab_size else vocab_size
    only_the_best = row.greedy or top_k == 1
    logprobs = NO_LOGPROBS if row.logprobs is None else vocab_size if row.logprobs < 0 else row.logprobs
    return DeviceRow(
        temperature=0.0 if row.greedy else float(row.temperature),
        top_k=1 if only_the_best else top_k,
        top_p=0.0 if only_the_best else float(row.top_p),
        presence_penalty=float(row.presence_penalty),
        frequency_penalty=float(row.frequency_penalty),
        repetition_penalty=float(row.repetition_penalty),
        seed=None if row.seed is None else signed64(row.seed),
        num_logprobs=logprobs,
    )


def columns(rows: Sequence[DeviceRow]) -> TTSamplingParams:
    """The rows as the nine lists a model takes."""
    return TTSamplingParams(
        temperature=[row.temperature for row in rows],
        top_k=[row.top_k for row in rows],
        top_p=[row.top_p for row in rows],
        presence_penalty=[row.presence_penalty for row in rows],
        frequency_penalty=[row.frequency_penalty for row in rows],
        repetition_penalty=[row.repetition_penalty for row in rows],
        seed=[row.seed for row in rows],
        num_logprobs=[row.num_logprobs for row in rows],
        enable_log_probs=[row.num_logprobs >= 0 for row in rows],
    )


class DeviceParams:
    """The device parameters of all rows of a worker.

    A steady decode step builds nothing: `view` returns the same object until a row changes.
    """

    def __init__(self, capacity: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._rows = [PADDING] * capacity
        self._view: TTSamplingParams | None = None
        self._penalised: set[int] = set()

    def set(self, row: int, sampling: RowSampling) -> None:
        """A request takes a row."""
        new = device_row(sampling, self._vocab_size)
        self._change(row, new)
        if new.penalised:
            self._penalised.add(row)
        else:
            self._penalised.discard(row)

    def clear(self, row: int) -> None:
        """The row is free: it becomes padding."""
        self._change(row, PADDING)
        self._penalised.discard(row)

    def _change(self, row: int, new: DeviceRow) -> None:
        if self._rows[row] != new:
            self._rows[row] = new
            self._view = None

    @property
    def penalised(self) -> bool:
        """True when some row has a penalty, so the model also needs the token histories (contract 1.6)."""
        return bool(self._penalised)

    def any_penalised(self, rows: Sequence[int]) -> bool:
        """True when one of these rows has a penalty."""
        return bool(self._penalised) and not self._penalised.isdisjoint(rows)

    def view(self) -> TTSamplingParams:
        """All rows, padding included: lists of length `capacity`. The same object until a row changes."""
        if self._view is None:
            self._view = columns(self._rows)
        return self._view

    def packed(self, rows: Sequence[int]) -> TTSamplingParams:
        """These rows in this order, for a prefill call: lists of length `len(rows)`."""
        return columns([self._rows[row] for row in rows])
