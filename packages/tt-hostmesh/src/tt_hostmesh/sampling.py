"""The device's sampler: greedy, temperature, top-k up to 32, top-p, seeds, penalties, sampled logprob."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_TOP_K = 32
"""What the device's top-k can hold; tt-metal clamps to it."""


@dataclass(slots=True)
class SamplingTable:
    """Parameters by row, as tensors of length n. Formatted as tt-metal does it (contract 1.8).

    temperature, top_p, presence, frequency, repetition: float32; top_k: int64 in 1..32, 1 = greedy;
    seed: int64, valid where `seeded`; logprobs: bool, rows that want the sampled token's.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    presence: Tensor
    frequency: Tensor
    repetition: Tensor
    seed: Tensor
    seeded: Tensor
    logprobs: Tensor

    @staticmethod
    def of(params: Any, rows: int) -> "SamplingTable":
        """From an object with the nine fields; a scalar field counts for all rows."""

        def raw(name: str) -> list[Any]:
            value: Any = getattr(params, name)
            return list(value) if isinstance(value, list) else [value] * rows  # pyright: ignore[reportUnknownArgumentType]

        def column(name: str, neutral: Any) -> list[Any]:
            return [neutral if item is None else item for item in raw(name)]

        temperature = torch.tensor(column("temperature", 0.0), dtype=torch.float32)
        top_k = torch.tensor(column("top_k", 1), dtype=torch.int64)
        top_p = torch.tensor(column("top_p", 1.0), dtype=torch.float32).clamp(0.0, 1.0)
        repetition = torch.tensor(column("repetition_penalty", 1.0), dtype=torch.float32)
        top_k = torch.where((top_k < 1) | (top_k > MAX_TOP_K), MAX_TOP_K, top_k)
        greedy = temperature == 0
        seeds = raw("seed")
        return SamplingTable(
            temperature=torch.where(greedy, 1.0, temperature),
            top_k=torch.where(greedy, 1, top_k),
            top_p=top_p,
            presence=torch.tensor(column("presence_penalty", 0.0), dtype=torch.float32),
            frequency=torch.tensor(column("frequency_penalty", 0.0), dtype=torch.float32),
            repetition=torch.where(repetition == 0, 1.0, repetition),
            seed=torch.tensor([_signed(seed or 0) for seed in seeds], dtype=torch.int64),
            seeded=torch.tensor([seed is not None for seed in seeds]),
            logprobs=torch.tensor([bool(flag) for flag in column("enable_log_probs", False)]),
        )

    @property
    def penalised(self) -> bool:
        return bool((self.presence != 0).any() or (self.frequency != 0).any() or (self.repetition != 1).any())

    def take(self, rows: Tensor) -> "SamplingTable":
        """The table of `rows`, int64 [m], in that order."""
        return SamplingTable(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class SamplingColumns:
    """The parameters of a call as they came, copied: the caller may change its lists. `table` is the device's work."""

    fields: SimpleNamespace
    rows: int

    @staticmethod
    def of(params: Any, rows: int) -> "SamplingColumns":
        values = {field.name: getattr(params, field.name, None) for field in fields(params)}
        return SamplingColumns(SimpleNamespace(**{name: copy(value) for name, value in values.items()}), rows)

    def table(self) -> SamplingTable:
        return SamplingTable.of(self.fields, self.rows)


class TokenCounts:
    """What the penalties need: which tokens the prompt had, how often each was generated. [rows, vocab] each."""

    def __init__(self, prompt: Tensor, generated: Tensor) -> None:
        self.prompt = prompt
        self.generated = generated

    @staticmethod
    def of(prompt_tokens: Tensor, output_tokens: Tensor | None, vocab_size: int) -> "TokenCounts":
        """From histories, int [rows, length], -1 beyond a row's end."""
        prompt = _counts(prompt_tokens, vocab_size) > 0
        if output_tokens is None:
            return TokenCounts(prompt, torch.zeros(prompt.shape, dtype=torch.int32))
        return TokenCounts(prompt, _counts(output_tokens, vocab_size))

    def take(self, rows: Tensor) -> "TokenCounts":
        return TokenCounts(self.prompt[rows], self.generated[rows])

    def at(self, rows: Tensor, ids: Tensor) -> "TokenCounts":
        """The counts of the tokens `ids`, int64 [n, k], in `rows`, int64 [n]."""
        return TokenCounts(self.prompt[rows[:, None], ids], self.generated[rows[:, None], ids])

    def add(self, rows: Tensor, tokens: Tensor) -> None:
        """Count one more generated token in each of `rows`."""
        self.generated[rows, tokens] += 1

    def penalise(self, logits: Tensor, table: SamplingTable) -> Tensor:
        """vLLM's order: repetition over prompt and output, then frequency, then presence over the output."""
        seen = self.prompt | (self.generated > 0)
        repetition = torch.where(seen, table.repetition[:, None], 1.0)
        logits = torch.where(logits > 0, logits / repetition, logits * repetition)
        logits = logits - table.frequency[:, None] * self.generated
        return logits - table.presence[:, None] * (self.generated > 0)


def sample(
    logits: Tensor, table: SamplingTable, positions: Tensor, counts: TokenCounts | None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Sample one token a row.

    logits: float32 [n, vocab]; positions: int64 [n], absolute position of the token to be sampled; counts: of the same
    rows, needed when a penalty is active. Returns tokens int64 [n] and logprobs float32 [n]: the log-probability under
    the unmodified logits for rows that asked, 1.0 elsewhere.
    """
    shaped = counts.penalise(logits, table) if counts is not None and table.penalised else logits
    tokens = shaped.argmax(-1)
    stochastic = (table.top_k > 1).nonzero()[:, 0]
    if len(stochastic):
        some = table.take(stochastic)
        draws = uniforms(some, positions[stochastic], generator)
        tokens[stochastic] = _draw(shaped[stochastic], some, draws)
    logprobs = torch.ones(len(tokens))
    wanted = table.logprobs.nonzero()[:, 0]
    if len(wanted):
        picked = tokens[wanted, None]
        logprobs[wanted] = logits[wanted].log_softmax(-1).gather(1, picked)[:, 0]
    return tokens, logprobs


def uniforms(table: SamplingTable, positions: Tensor, generator: torch.Generator) -> Tensor:
    """One number in [0, 1) a row, float64 [n]: a hash of (seed, position) for seeded rows, else from `generator`.

    A seeded row's number depends on nothing else: not on its row, the batch or the phase.
    """
    draws = torch.rand(len(positions), generator=generator, dtype=torch.float64)
    hashed = torch.as_tensor(_hash(table.seed.numpy(), positions.numpy()))
    return torch.where(table.seeded, hashed, draws)


def _draw(logits: Tensor, table: SamplingTable, draws: Tensor) -> Tensor:
    """Top-k, then top-p over what is left, then the inverse of the cumulative distribution."""
    width = min(int(table.top_k.max()), logits.shape[-1])
    values, indices = logits.topk(width, -1)
    beyond = torch.arange(width) >= table.top_k[:, None]
    probs = (values / table.temperature[:, None]).masked_fill(beyond, float("-inf")).softmax(-1).double()
    before = probs.cumsum(-1) - probs
    probs = probs.masked_fill((before >= table.top_p[:, None]) & (before > 0), 0.0)
    cumulative = probs.cumsum(-1)
    chosen = (cumulative <= draws[:, None] * cumulative[:, -1:]).sum(-1).clamp(max=width - 1)
    return indices.gather(1, chosen[:, None])[:, 0]


def _counts(history: Tensor, vocab_size: int) -> Tensor:
    history = history.long()
    present = history >= 0
    counts = torch.zeros(history.shape[0], vocab_size, dtype=torch.int32)
    return counts.scatter_add_(1, history.clamp(min=0), present.int())


def _signed(seed: int) -> int:
    seed &= 0xFFFFFFFFFFFFFFFF
    return seed - (1 << 64) if seed >> 63 else seed


def _hash(seeds: "np.ndarray[Any, Any]", positions: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """float64 in [0, 1): splitmix64 of the seed, then of that and the position."""
    mixed = _splitmix64(_splitmix64(seeds.astype(np.uint64)) ^ positions.astype(np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _splitmix64(state: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


__all__: Sequence[str] = ("MAX_TOP_K", "SamplingTable", "TokenCounts", "sample", "uniforms")
