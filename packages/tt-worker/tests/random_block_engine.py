"""The random engine for a model with block output: it counts blocks in flight as tt-scheduler does under vLLM."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from block_ledger import BlockLedger
from random_engine import Asked, Engine, Scenario, Subject

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import Mode
from tt_scheduler.blocks import BlockOutput, ends_in_flight
from tt_worker.block_runner import BlockRunner
from tt_worker.runner import Runner


@dataclass(frozen=True)
class BlockScenario(Scenario):
    """What the platform's rules leave: one lane, whole prompts, the device samples, and plain blocks for one request
    without overlap. longest: tokens of the longest sequence."""

    output: BlockOutput = field(default_factory=lambda: BlockOutput(3))
    longest: int = 44


def plain(*, seed: int, contract: int, blocks: int, requests: int, longest: int, width: int) -> BlockScenario:
    return BlockScenario(
        seed, contract, False, 1, Mode.ALL, 64, blocks, requests, output=BlockOutput(width), longest=longest
    )


def adaptive(
    *,
    seed: int,
    contract: int,
    overlap: bool,
    mode: Mode,
    blocks: int,
    requests: int,
    longest: int,
    width: int,
    max_prompt: int,
    extent: int,
) -> BlockScenario:
    output = BlockOutput(width, adaptive=True, max_prompt=max_prompt, extent=extent)
    return BlockScenario(seed, contract, overlap, 1, mode, 64, blocks, requests, output=output, longest=longest)


def block_ledger(scenario: BlockScenario, rows: int) -> Subject:
    output = scenario.output
    model = BlockLedger(
        rows,
        scenario.blocks,
        width=output.width,
        adaptive=output.adaptive,
        contract=scenario.contract,
        max_prompt=output.max_prompt,
        longest=scenario.longest,
    )
    return Subject(model, prefill_width=output.of_prefill)


class BlockEngine(Engine):
    """Requests arrive one after another, so that a lone one becomes one of several and is left alone again.

    stops:  at so many tokens a request meets a stop token, which nobody knows before it is read
    counts: what this engine saw of what it is for
    """

    def __init__(self, scenario: BlockScenario, subject: Subject | None = None) -> None:
        self.output = scenario.output
        self.longest = scenario.longest
        self.ROWS = self.rows_of(scenario)
        self.stops: dict[str, int] = {}
        self.counts = dict.fromkeys(("blocks", "singles", "alone and narrow", "clipped", "preempted", "switched"), 0)
        self._last = 0
        super().__init__(scenario, subject or block_ledger(scenario, self.ROWS))
        self.later = deque(self.waiting)
        self.waiting, self.everyone = [], []

    @staticmethod
    def rows_of(scenario: BlockScenario) -> int:
        return Engine.ROWS if scenario.output.adaptive else 1

    def stop_of(self, r: Asked) -> int:
        return self.stops[r.name]

    def _runner(self, scenario: Scenario, subject: Subject, *_: Any, **__: Any) -> Runner:
        build = partial(BlockRunner, self.output)
        return super()._runner(scenario, subject, build, longest=self.longest)

    def ask(self, number: int) -> Asked:
        r, rng = super().ask(number), self.random
        r.sampling = RowSampling(temperature=0)
        r.max_tokens = min(rng.randint(1, 40), self.longest - len(r.prompt))
        self.stops[r.name] = rng.randint(1, r.max_tokens) if rng.random() < 0.4 else r.max_tokens
        return r

    def over(self) -> bool:
        return not self.later and super().over()

    def step(self) -> None:
        if self.later and (not (self.running or self.waiting) or self.random.random() < 0.2):
            self.waiting.append(self.later.popleft())
            self.everyone.append(self.waiting[-1])
        super().step()

    # Scheduling

    def decodable(self, r: Asked) -> bool:
        known, ends_at = len(r.prompt) + len(r.output), len(r.prompt) + r.max_tokens
        return r.running and r.computed >= r.target and not ends_in_flight(known, r.in_flight, ends_at, self.longest)

    def whole(self, r: Asked, start: int, count: int) -> int:
        return count if start + count == r.target else 0

    def ahead(self, r: Asked) -> int:
        return len(r.prompt) + len(r.output) + r.in_flight - r.computed

    def width(self, going: list[Asked]) -> int:
        width = self.output.of_decode([r.target for r in going])
        if going:
            self.counts["blocks" if width > 1 else "singles"] += 1
            self.counts["alone and narrow"] += width == 1 == len(going)
            self.counts["switched"] += self._last not in (0, width)
            self._last = width
        return width

    def slots(self, tokens: int) -> int:
        return min(tokens + self.output.lookahead, self.longest)

    def preempt(self, r: Asked) -> None:
        self.counts["preempted"] += 1
        super().preempt(r)

    # Results

    def take(self, r: Asked, ids: list[int], emitted: int) -> None:
        room = self.longest - len(r.prompt) - len(r.output)
        assert len(ids) == min(emitted, room), "a block is clipped at the longest sequence and nowhere else"
        self.counts["clipped"] += len(ids) < emitted
        r.output += ids
        if len(r.output) >= self.stops[r.name]:
            del r.output[self.stops[r.name] :]
            self.finish(r)
