"""Presence, frequency and repetition penalties on the tokens that rows have seen.

A step costs one update per emitted token and one pass over the distinct tokens of the penalised rows; the rest of the
vocabulary is not touched. Same arithmetic and order as vLLM's `apply_penalties`: repetition over prompt and output,
then frequency and presence over the output alone.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from tt_sampling.host.history import History


class Penalties:
    """The penalised rows of one batch layout, side by side in flat arrays.

    Each history's arrays become views into these, so an update of the batch is an update of its histories.
    """

    def __init__(self, positions: Sequence[int], histories: Sequence[History], vocab_size: int) -> None:
        self._positions = positions
        self._histories = histories
        self._vocab_size = vocab_size
        self._repeats = any(h.sampling.repetition_penalty != 1.0 for h in histories)
        for history in histories:
            history.settle()
        self._join()

    def _join(self) -> None:
        histories = self._histories
        sizes = [history.ids.shape[0] for history in histories]
        places = torch.tensor(sizes)
        self._starts = [0, *accumulate(sizes)]
        self._ids = torch.cat([history.ids for history in histories])
        self._count = torch.cat([history.count for history in histories])
        self._repeat = torch.cat([history.repeat for history in histories])
        for history, start, end in zip(histories, self._starts, self._starts[1:], strict=False):
            history.ids = self._ids[start:end]
            history.count = self._count[start:end]
            history.repeat = self._repeat[start:end]
        lines = torch.tensor(self._positions, dtype=torch.int64) * self._vocab_size
        self._at = self._ids + lines.repeat_interleave(places)
        self._frequency = _spread([h.sampling.frequency_penalty for h in histories], places)
        self._presence = _spread([h.sampling.presence_penalty for h in histories], places)

    def apply(self, logits: Tensor) -> None:
        """Penalise, in place, contiguous float32 logits [n, V]."""
        self._advance()
        flat = logits.view(-1)
        values = flat.take(self._at)
        if self._repeats:
            values *= torch.where(values > 0, 1.0 / self._repeat, self._repeat)
        if self._frequency is not None:
            values -= self._frequency * self._count
        if self._presence is not None:
            values -= self._presence * (self._count > 0)
        flat.put_(self._at, values)

    def _advance(self) -> None:
        """Count the tokens emitted since the last step."""
        changes = _Changes()
        moved = False
        for position, history, start in zip(self._positions, self._histories, self._starts, strict=False):
            changed = history.advance()
            if changed is None:
                moved = True
            elif changed:
                changes.add(position, start, history, changed)
        if changes.places:
            self._write(changes)
        if moved:
            self._join()

    def _write(self, changes: "_Changes") -> None:
        places, tokens = torch.tensor(changes.places), torch.tensor(changes.tokens)
        self._ids[places] = tokens
        self._at[places] = torch.tensor(changes.positions) * self._vocab_size + tokens
        self._count[places] = torch.tensor(changes.counts, dtype=torch.float32)
        self._repeat[places] = torch.tensor(changes.repeats, dtype=torch.float32)


class _Changes:
    """Places of a batch whose count changed, gathered so that they are written at once."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.tokens: list[int] = []
        self.counts: list[int] = []
        self.positions: list[int] = []
        self.repeats: list[float] = []

    def add(self, position: int, start: int, history: History, changed: dict[int, int]) -> None:
        self.places += [start + place for place in changed]
        self.tokens += changed.values()
        self.counts += history.counts(list(changed))
        self.positions += [position] * len(changed)
        self.repeats += [history.sampling.repetition_penalty] * len(changed)


def _spread(values: Sequence[float], places: Tensor) -> Tensor | None:
    """A value per place from a value per row; None when all are 0."""
    return torch.tensor(values).repeat_interleave(places) if any(values) else None
