"""The tokens one request has seen, counted as they come: its history is never read twice."""

from collections.abc import Sequence

import torch

from tt_sampling.parameters import RowSampling

HEADROOM = 256
"""Places kept for new tokens: the memory is laid out anew once in as many tokens."""


class History:
    """The distinct tokens of a penalised request, each at a place of its own, and how often each was emitted.

    ids:    int64 [places], the token of each place
    count:  float32 [places], how often it was emitted; 0 for a token of the prompt alone
    repeat: float32 [places], the repetition penalty
    Free places hold a token that was not seen, with a count of 0 and a penalty of 1, so that treating them like the
    others changes nothing.
    """

    def __init__(self, sampling: RowSampling, vocab_size: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.sampling = sampling
        self._vocab_size = vocab_size
        self._prompt = prompt
        self._output = output
        self._recount()

    def advance(self) -> dict[int, int] | None:
        """Count what was emitted since the last call. Returns place -> token of what changed.

        None when the places were laid out anew: no room was left, or the output was replaced by a shorter one.
        Raises ValueError for a token outside the vocabulary, such as a placeholder.
        """
        if len(self._output) < self._consumed:
            self._recount()
            return None
        changed = self._consume()
        if len(self._counts) > self.ids.shape[0] or self._free in self._place:
            self._lay_out()
            return None
        return changed

    def settle(self) -> None:
        """Count what was emitted since the last call into this history's own arrays."""
        changed = self.advance()
        if changed:
            places = torch.tensor(list(changed))
            self.ids[places] = torch.tensor(list(changed.values()))
            self.count[places] = torch.tensor(self.counts(list(changed)), dtype=torch.float32)
            self.repeat[places] = self.sampling.repetition_penalty

    def counts(self, places: Sequence[int]) -> list[int]:
        """How often the tokens at these places were emitted."""
        return [self._counts[place] for place in places]

    def _recount(self) -> None:
        # Ids outside the vocabulary stand for image and audio places: they are no tokens.
        seen = dict.fromkeys(token for token in self._prompt if 0 <= token < self._vocab_size)
        self._place = {token: place for place, token in enumerate(seen)}
        self._counts = [0] * len(seen)
        self._consumed = 0
        self._consume()
        self._lay_out()

    def _consume(self) -> dict[int, int]:
        place, counts = self._place, self._counts
        changed: dict[int, int] = {}
        for token in self._output[self._consumed :]:
            if not 0 <= token < self._vocab_size:
                raise ValueError(f"emitted token {token} is outside the vocabulary of {self._vocab_size} tokens")
            at = place.setdefault(token, len(counts))
            if at == len(counts):
                counts.append(0)
            counts[at] += 1
            changed[at] = token
        self._consumed = len(self._output)
        return changed

    def _lay_out(self) -> None:
        used = len(self._counts)
        self._free = next((token for token in reversed(range(self._vocab_size)) if token not in self._place), -1)
        places = used + HEADROOM if self._free >= 0 else used
        self.ids = torch.full((places,), self._free, dtype=torch.int64)
        self.ids[:used] = torch.tensor(list(self._place), dtype=torch.int64)
        self.count = torch.zeros(places)
        self.count[:used] = torch.tensor(self._counts, dtype=torch.float32)
        self.repeat = torch.ones(places)
        self.repeat[:used] = self.sampling.repetition_penalty
