"""Models that emit several tokens a step: how many, what is reserved for them, and when a request is sure to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BlockOutput:
    """What a model class declares of its block output (tt-metal contract 1.12).

    width:       tokens of a block
    adaptive:    a lone row of a decode step emits a block, each row of a batch one token, a prefill one anchor;
                 otherwise every step emits a block, a prefill too
    max_prompt:  tokens; a request that entered with more stays at one token a step. 0: no limit
    extent:      tokens that the device may write from a step's first position on
    """

    width: int = 1
    adaptive: bool = False
    max_prompt: int = 0
    extent: int = 0

    @classmethod
    def from_mapping(cls, values: object) -> BlockOutput:
        """From the entry that the platform keeps in the configuration; one token a step without one."""
        if not isinstance(values, Mapping):
            return ONE_TOKEN
        given: Mapping[str, Any] = values  # pyright: ignore[reportUnknownVariableType]
        return cls(int(given["width"]), bool(given["adaptive"]), int(given["max_prompt"]), int(given["extent"]))

    @property
    def blocks(self) -> bool:
        return self.width > 1

    @property
    def lookahead(self) -> int:
        """KV tokens to reserve ahead of what is computed: this block, the next one, and what the device writes."""
        return max(2 * self.width, self.extent) if self.blocks else 0

    @property
    def of_prefill(self) -> int:
        """Tokens that each row of a prefill step emits once its prompt is complete."""
        return 1 if self.adaptive else self.width

    def of_decode(self, entered: Sequence[int]) -> int:
        """Tokens that each row of a decode step emits. entered: tokens that each row's last prefill ended at."""
        if not self.adaptive:
            return self.width
        alone = len(entered) == 1 and not 0 < self.max_prompt < entered[0]
        return self.width if alone else 1

    def room(self, prompt: int, max_model_len: int) -> int:
        """Most output tokens of a request: whole blocks behind its prompt, which itself fills whole tiles; 0 or less
        when not even one fits."""
        tiles = max_model_len // TILE * TILE
        return (tiles - -(-prompt // TILE) * TILE) // self.width * self.width


TILE = 32
"""Tokens of a tile on the device."""

ONE_TOKEN = BlockOutput()

NEUTRAL: Mapping[str, Any] = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
    "logprobs": None,
    "logit_bias": None,
    "min_tokens": 0,
    "allowed_token_ids": None,
}
"""Sampling parameters that have no effect on blocks, which the model samples by its own rule. The last four are refused
at the front; what comes past it must not stop the engine."""


def ends_in_flight(known: int, in_flight: int, ends_at: int, max_model_len: int) -> bool:
    """Whether the tokens in flight are sure to finish a request, so that no further step is worth scheduling.

    known: prompt and output tokens read back; in_flight: tokens of steps not read yet; ends_at: tokens at which its
    own limit ends it.
    """
    return in_flight > 0 and known + in_flight >= min(ends_at, max_model_len)
