"""The host sampler: vLLM's results, computed only for what each row asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import RLock
from typing import Protocol

import torch
from torch import Tensor

from tt_sampling.host.blocks import Blocks, argmax, split
from tt_sampling.host.grammar import apply_bitmask
from tt_sampling.host.greedy import best_of_lines
from tt_sampling.host.logprobs import Logprobs, Scores, Wanted, gather, log_sums
from tt_sampling.host.narrow import draw
from tt_sampling.host.noise import draw_bits
from tt_sampling.host.plan import Draws, Plan, Request
from tt_sampling.host.plan import plan as plan_of
from tt_sampling.host.processed import processed
from tt_sampling.host.scratch import Scratch
from tt_sampling.late import Late
from tt_sampling.parameters import RowSampling


class LogprobsMode(Enum):
    """Which numbers logprobs are: vLLM's `ModelConfig.logprobs_mode`.

    RAW: before bias, bans, penalties, temperature and limits, but after the grammar;  PROCESSED: what is drawn from.
    """

    RAW_LOGPROBS = "raw_logprobs"
    RAW_LOGITS = "raw_logits"
    PROCESSED_LOGPROBS = "processed_logprobs"
    PROCESSED_LOGITS = "processed_logits"


class Hooks(Protocol):
    """Foreign code between the stages. Each gets contiguous float32 logits [n, V] and may change them in place."""

    def before_penalties(self, logits: Tensor, rows: Sequence[int]) -> None:
        """After bans and bias."""
        ...

    def after_penalties(self, logits: Tensor, rows: Sequence[int]) -> None:
        """Before the argmax of greedy rows."""
        ...

    def wants_scaled(self) -> bool:
        """True when `scaled` has something to do."""
        ...

    def scaled(self, logits: Tensor, rows: Sequence[int]) -> None:
        """After greedy tokens were taken and the others divided by their temperature, before the limits."""
        ...


@dataclass(frozen=True, slots=True)
class Masks:
    """Grammar masks of one step. positions: int64 [k], lines of the logits;  words: int32 [k, ceil(V / 32)]"""

    positions: Tensor
    words: Tensor


@dataclass(frozen=True, slots=True)
class Sampled:
    """tokens: int64 [n];  late: logprobs, worked out when they are asked for; None when no row asks"""

    tokens: Tensor
    late: Late[Logprobs] | None

    @property
    def logprobs(self) -> Logprobs | None:
        return None if self.late is None else self.late()


class HostSampler:
    """Samples any rows of a worker. Rows are stable: a request keeps its row until it is released."""

    def __init__(self, vocab_size: int, mode: LogprobsMode = LogprobsMode.RAW_LOGPROBS) -> None:
        self._vocab_size = vocab_size
        self._mode = mode
        self._requests: dict[int, Request] = {}
        self._plan: Plan | None = None
        self._scratch = Scratch()
        # Logprobs are worked out in the engine's time, while the device has the next step: memory of their own.
        self._late_scratch = Scratch()
        self._late_lock = RLock()

    def admit(self, row: int, sampling: RowSampling, stream: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        """A request takes a row. `output` is its live list of emitted tokens; `stream` see `tt_sampling.seeds`."""
        self._requests[row] = Request(sampling, self._vocab_size, stream, prompt, output)
        self._plan = None

    def release(self, row: int) -> None:
        """The row is free."""
        if self._requests.pop(row, None) is not None:
            self._plan = None

    def sample(
        self, logits: Tensor, rows: Sequence[int], masks: Masks | None = None, hooks: Hooks | None = None
    ) -> Sampled:
        """One token per row from contiguous float32 logits [n, V], which are changed in place.

        Line i belongs to rows[i]. The index of a draw is the length of the row's output, so nothing advances here.
        """
        plan = self._plan_for(rows)
        want = plan.logprobs
        if masks is not None:
            apply_bitmask(logits, masks.positions, masks.words)
        lines = logits.index_select(0, want.positions) if want is not None and self._raw else None
        self._edit(plan, logits, hooks)
        if plan.draws is None:
            tokens, scaled = best_of_lines(logits), False
        else:
            tokens, scaled = self._random(plan, plan.draws, logits, hooks)
        if want is None:
            return Sampled(tokens, None)
        if lines is not None:
            untouched = not plan.edits and plan.penalties is None and hooks is None
            scores = self._raw_scores(want, lines, best=want.greedy and untouched)
        else:
            scores = self._processed_scores(plan, want, logits.index_select(0, want.positions), scaled)
        late = Late(lambda: gather(want, scores(), tokens, self._late_scratch), self._late_lock)
        return Sampled(tokens, late)

    def _plan_for(self, rows: Sequence[int]) -> Plan:
        if self._plan is None or self._plan.rows != tuple(rows):
            self._plan = plan_of(rows, [self._requests[row] for row in rows], self._vocab_size)
        return self._plan

    def _edit(self, plan: Plan, logits: Tensor, hooks: Hooks | None) -> None:
        for edit in plan.edits:
            edit.apply(logits)
        if hooks is not None:
            hooks.before_penalties(logits, plan.rows)
        if plan.penalties is not None:
            plan.penalties.apply(logits)
        if hooks is not None:
            hooks.after_penalties(logits, plan.rows)

    def _random(self, plan: Plan, draws: Draws, logits: Tensor, hooks: Hooks | None) -> tuple[Tensor, bool]:
        """Tokens int64 [n] of a batch in which some rows draw, and whether `logits` were scaled for a hook."""
        blocks = split(logits, fine=plan.fine)
        tokens = torch.empty(len(plan.rows), dtype=torch.int64)
        if plan.greedy is not None:
            tokens.index_copy_(0, plan.greedy, argmax(blocks, plan.greedy))
        scaled = hooks is not None and hooks.wants_scaled()
        if scaled and hooks is not None:
            logits *= self._scales(plan.rows)
            hooks.scaled(logits, plan.rows)
            blocks = split(logits, fine=plan.fine)
        self._draw(blocks, draws, scaled, tokens)
        return tokens, scaled

    def _draw(self, blocks: Blocks, draws: Draws, scaled: bool, tokens: Tensor) -> None:
        """Write one token of every random row into `tokens`."""
        bits = draw_bits(draws.bases, torch.tensor([len(output) for output in draws.outputs]))
        start = 0
        for group in draws.groups:
            stop = start + group.positions.shape[0]
            drawn = draw(blocks, group.unscaled() if scaled else group, bits[start:stop], self._scratch)
            tokens.index_copy_(0, group.positions, drawn.clamp_(max=self._vocab_size - 1))
            start = stop

    def _raw_scores(self, want: Wanted, lines: Tensor, *, best: bool) -> Callable[[], Scores]:
        """From raw logits of the rows that ask: `lines`, a copy. best: their tokens are sure to be the best."""

        def scores() -> Scores:
            blocks = split(lines, fine=want.fine)
            tops = blocks.maxima.amax(-1, keepdim=True)
            of_logprobs = self._mode is LogprobsMode.RAW_LOGPROBS
            less = log_sums(lines, tops, self._late_scratch) if of_logprobs else None
            return Scores(blocks, torch.arange(lines.shape[0]), lines, less, tops if best else None)

        return scores

    @property
    def _raw(self) -> bool:
        return self._mode in (LogprobsMode.RAW_LOGPROBS, LogprobsMode.RAW_LOGITS)

    def _processed_scores(self, plan: Plan, want: Wanted, lines: Tensor, scaled: bool) -> Callable[[], Scores]:
        """From what the rows that ask are drawn from: `lines`, a copy."""
        rows = [row for row in plan.rows if self._requests[row].sampling.wants_logprobs]
        asked = [self._requests[row].sampling for row in rows]
        scale = torch.ones(len(asked), 1) if scaled else self._scales(rows)

        def scores() -> Scores:
            top_k = [row.top_k if 0 < row.top_k < self._vocab_size and not row.greedy else 0 for row in asked]
            found = processed(
                lines,
                scale,
                torch.tensor(top_k).unsqueeze(1),
                torch.tensor([1.0 if row.greedy else row.top_p for row in asked]).unsqueeze(1),
                torch.tensor([0.0 if row.greedy else row.min_p for row in asked]).unsqueeze(1),
            )
            found = found.log_softmax(-1) if self._mode is LogprobsMode.PROCESSED_LOGPROBS else found
            return Scores(split(found, fine=want.fine), torch.arange(len(rows)), found)

        return scores

    def _scales(self, rows: Sequence[int]) -> Tensor:
        asked = [self._requests[row].sampling for row in rows]
        return torch.tensor([1.0 if row.greedy else 1.0 / row.temperature for row in asked]).unsqueeze(1)
