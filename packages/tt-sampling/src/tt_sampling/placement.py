"""Where a step is sampled: on the device or on the host, and why.

The device samples a whole batch or nothing, so one row with a reason moves the step to the host.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from tt_sampling.parameters import RowSampling
from tt_sampling.reasons import Reason

NOTHING: frozenset[Reason] = frozenset()
_NO_ROWS: Mapping[int, frozenset[Reason]] = MappingProxyType({})

LOGPROBS_DEVICES_PER_LANE = (8, 32)
"""Mesh sizes on which tt-metal's sampler returns logprobs. Source: tt-metal contract 1.8."""

MAX_DEVICE_LOGPROBS = 32
"""The device sampler keeps the 32 best candidates and nothing else. Source: tt-metal contract 1.6."""


TOP_LOGPROBS_FAMILIES = frozenset({"gpt_oss"})
"""Values of a checkpoint's `model_type` whose device sampler returns top lists. Source: tt-metal contract 1.8."""

TOP_LOGPROBS_CAPABILITY = "supports_device_top_logprobs"
"""The key of `model_capabilities` by which any other model says that its device sampler returns top lists."""


class Phase(Enum):
    """A step is all prefill or all decode."""

    PREFILL = "prefill"
    DECODE = "decode"


class Mode(Enum):
    """The option `sample_on_device_mode`; absent means OFF."""

    OFF = "off"
    ALL = "all"
    DECODE_ONLY = "decode_only"

    @classmethod
    def of(cls, option: str | None) -> "Mode":
        """The mode an option value names. Raises ValueError for anything but None, "all", "decode_only"."""
        if option is None:
            return cls.OFF
        if option in ("all", "decode_only"):
            return cls(option)
        raise ValueError(
            f'sample_on_device_mode is {option!r}: allowed are "all" and "decode_only"; '
            "leave it out to sample on the host"
        )


@dataclass(frozen=True, slots=True)
class DeviceSampler:
    """What the device sampler of this launch can do.

    supports_penalties, supports_grammar, max_top_k: `model_capabilities` keys supports_device_penalties,
        supports_device_grammar (True only once the model activated it) and max_device_top_k
    devices_per_lane: chips that serve one lane
    logprobs:         the engine wants raw logprobs, which are what a device computes
    top_logprobs:     the model returns top-n lists (gpt-oss), not only the sampled token's logprob
    seeded_on_host:   seeded draws never happen on the device, whose random stream is not the host's; without it a
                      seeded request that shares a batch with a host-only one changes streams
    """

    mode: Mode = Mode.OFF
    supports_penalties: bool = True
    max_top_k: int | None = None
    supports_grammar: bool = False
    devices_per_lane: int = 1
    logprobs: bool = True
    top_logprobs: bool = False
    seeded_on_host: bool = False
    always_compat: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """The answer for one step. `device` is True exactly when there is no reason against it.

    step: reasons of the whole step;  rows: reasons of single rows, only rows that have some
    reasons: all of them;  names: theirs, in alphabetical order
    """

    device: bool
    step: frozenset[Reason] = NOTHING
    rows: Mapping[int, frozenset[Reason]] = field(default_factory=lambda: _NO_ROWS)
    reasons: frozenset[Reason] = NOTHING
    names: tuple[str, ...] = ()

    @classmethod
    def on_host(cls, step: frozenset[Reason], rows: Mapping[int, frozenset[Reason]]) -> "Placement":
        """The host, for these reasons."""
        reasons = step.union(*rows.values())
        names = tuple(sorted(reason.name for reason in reasons))
        return cls(False, step, MappingProxyType(dict(rows)), reasons, names)


ON_DEVICE = Placement(device=True)


def returns_top_logprobs(model_type: str, capabilities: Mapping[str, object]) -> bool:
    """Whether a model's device sampler returns top lists: its own word, or else its family's."""
    return bool(capabilities.get(TOP_LOGPROBS_CAPABILITY, model_type in TOP_LOGPROBS_FAMILIES))


def row_reasons(row: RowSampling, sampler: DeviceSampler) -> frozenset[Reason]:
    """Reasons of one request that do not depend on the step. `min_tokens` counts as active here."""
    return frozenset(_row_reasons(row, sampler))


def _row_reasons(row: RowSampling, sampler: DeviceSampler) -> Iterable[Reason]:
    if row.penalised and not sampler.supports_penalties:
        yield Reason.PENALTIES
    if row.min_p > 0.0 and not row.greedy:
        yield Reason.MIN_P
    if row.logit_bias:
        yield Reason.LOGIT_BIAS
    if row.min_tokens > 0 and row.stop_token_ids:
        yield Reason.MIN_TOKENS
    if row.allowed_token_ids:
        yield Reason.ALLOWED_TOKEN_IDS
    if row.bad_words:
        yield Reason.BAD_WORDS
    if row.logits_processors:
        yield Reason.LOGITS_PROCESSOR
    if row.thinking_budget:
        yield Reason.THINKING_BUDGET
    if row.logprob_token_ids:
        yield Reason.LOGPROB_TOKEN_IDS
    if not row.greedy and sampler.max_top_k is not None and not 1 <= row.top_k <= sampler.max_top_k:
        yield Reason.TOP_K
    if sampler.seeded_on_host and row.seed is not None and not row.greedy and row.top_k != 1:
        yield Reason.SEED
    yield from _logprob_reasons(row, sampler)
    if row.structured and (not sampler.supports_grammar or row.logprobs is not None):
        yield Reason.STRUCTURED_OUTPUT


def _logprob_reasons(row: RowSampling, sampler: DeviceSampler) -> Iterable[Reason]:
    if row.logprobs is None:
        return
    if not sampler.logprobs or sampler.devices_per_lane not in LOGPROBS_DEVICES_PER_LANE:
        yield Reason.LOGPROBS
    elif row.logprobs != 0 and not (sampler.top_logprobs and 0 < row.logprobs <= MAX_DEVICE_LOGPROBS):
        yield Reason.TOP_LOGPROBS


def step_reasons(sampler: DeviceSampler, phase: Phase, chunk_not_final: bool) -> frozenset[Reason]:
    """Reasons of a step that hold whatever its rows ask for."""
    found: set[Reason] = set()
    if sampler.always_compat:
        found.add(Reason.ALWAYS_COMPAT)
    if sampler.mode is Mode.OFF:
        found.add(Reason.MODE_OFF)
    if sampler.mode is Mode.DECODE_ONLY and phase is Phase.PREFILL:
        found.add(Reason.PREFILL_IN_DECODE_ONLY)
    if chunk_not_final:
        found.add(Reason.CHUNK_NOT_FINAL)
    return frozenset(found)


def place(
    sampler: DeviceSampler,
    phase: Phase,
    rows: Mapping[int, frozenset[Reason]],
    *,
    structured: Iterable[int] = (),
    replayed: Iterable[int] = (),
    chunk_not_final: bool = False,
) -> Placement:
    """Place one step.

    rows:            reasons of the rows of this step (`row_reasons`); rows without any may be left out
    structured:      rows with a grammar; a device grammar works in decode steps only
    replayed:        rows with penalties whose output so far is prefilled again (contract 1.5 takes no histories)
    chunk_not_final: some row of this step computes a prompt chunk that is not the last one
    """
    of_step = step_reasons(sampler, phase, chunk_not_final)
    of_rows = {row: why for row, why in rows.items() if why}
    if phase is Phase.PREFILL:
        for row in structured:
            of_rows[row] = of_rows.get(row, NOTHING) | {Reason.STRUCTURED_OUTPUT}
    for row in replayed:
        of_rows[row] = of_rows.get(row, NOTHING) | {Reason.REPLAYED_PENALTIES}
    if not of_step and not of_rows:
        return ON_DEVICE
    return Placement.on_host(of_step, of_rows)


class PlacementTable:
    """Places the steps of one worker. A row's reasons are worked out once, when it is set.

    `place` costs nothing that grows with the batch while no row has a reason, and gives the same object while nothing
    changes.
    """

    def __init__(self, sampler: DeviceSampler) -> None:
        self.sampler = sampler
        self._hosted: dict[int, frozenset[Reason]] = {}
        self._structured: set[int] = set()
        self._short: dict[int, tuple[int, Sequence[int]]] = {}
        self._last: tuple[tuple[object, ...], Placement] | None = None

    def set(self, row: int, sampling: RowSampling, output_token_ids: Sequence[int] = ()) -> None:
        """A request takes a row. `output_token_ids` is its live list: `min_tokens` ends when it is long enough."""
        self.clear(row)
        why = row_reasons(sampling, self.sampler)
        if why:
            self._hosted[row] = why
        if sampling.structured:
            self._structured.add(row)
        if Reason.MIN_TOKENS in why:
            self._short[row] = (sampling.min_tokens, output_token_ids)

    def clear(self, row: int) -> None:
        """The row is free."""
        self._last = None
        self._hosted.pop(row, None)
        self._structured.discard(row)
        self._short.pop(row, None)

    def place(
        self,
        phase: Phase,
        rows: Sequence[int] | None = None,
        *,
        replayed: Sequence[int] = (),
        chunk_not_final: bool = False,
    ) -> Placement:
        """Place a step over `rows`, or over every row that is set (None). `replayed` see `place`."""
        if self._short:
            self._end_min_tokens()
        if not self._hosted and not self._structured:
            rows = None
        asked = (phase, chunk_not_final, tuple(replayed), None if rows is None else tuple(rows))
        if self._last is None or self._last[0] != asked:
            self._last = (asked, self._place(phase, rows, replayed, chunk_not_final))
        return self._last[1]

    def _place(
        self, phase: Phase, rows: Sequence[int] | None, replayed: Sequence[int], chunk_not_final: bool
    ) -> Placement:
        hosted, structured = self._hosted, self._structured
        if rows is not None:
            hosted = {row: hosted[row] for row in rows if row in hosted}
            structured = structured.intersection(rows)
        return place(
            self.sampler, phase, hosted, structured=structured, replayed=replayed, chunk_not_final=chunk_not_final
        )

    def _end_min_tokens(self) -> None:
        for row in [row for row, (least, output) in self._short.items() if len(output) >= least]:
            self._last = None
            del self._short[row]
            rest = self._hosted.pop(row) - {Reason.MIN_TOKENS}
            if rest:
                self._hosted[row] = rest
