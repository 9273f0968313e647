"""A small engine over the runner that schedules at random, but legally: what the worker's fuzz drives a model with."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from ledger_model import BLOCK, PLACEHOLDER, VOCABULARY, Argmax, LedgerModel

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.inflight import InFlight
from tt_worker.media import Image
from tt_worker.pages import PageTable, PageTables
from tt_worker.reload import ReloadPlanner
from tt_worker.rows import RowTable
from tt_worker.runner import Runner, RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest, StepResult
from tt_worker.steplog import StepLog


@dataclass
class Asked:
    """A request as the engine sees it."""

    name: str
    prompt: list[int]
    max_tokens: int
    sampling: RowSampling
    output: list[int] = field(default_factory=list)
    computed: int = 0
    target: int = 0
    in_flight: int = 0
    blocks: list[list[int | None]] = field(default_factory=list)  # by group; None: outside the window, given back
    running: bool = False
    finished: bool = False
    lane: int = 0
    told_its_end: bool = True
    images: list[Image] = field(default_factory=list)


@dataclass(frozen=True)
class Scenario:
    seed: int
    contract: int
    overlap: bool
    lanes: int
    mode: Mode
    budget: int
    blocks: int
    requests: int
    window: int | None = None
    recurrent: bool = False
    sees: bool = False


def values(tokens: int, rng: random.Random) -> dict[str, Any]:
    """An image of the ledger model: what it reads in the place of each placeholder."""
    return {"pixel_values": [rng.randrange(200, 300) for _ in range(tokens)], "image_grid_thw": tokens}


@dataclass(frozen=True)
class Subject:
    """The model that is driven.

    windows:      for each KV cache group, tokens that it keeps; None: all
    layer_groups: for each layer, its group
    alignment:    first positions of a prefill are rounded down to a multiple of it
    words:        prompts are of ids below it
    placeholder:  the token that stands for an image, as often as the image has tokens
    sizes:        tokens that an image may have
    picture:      makes an image of so many tokens
    apart:        two images have a token of text between them
    turns:        a model that sees counts rotary positions in three axes
    prefill_width: tokens that a prefill answers with
    """

    model: Any
    vocabulary: int = VOCABULARY
    windows: Sequence[int | None] = (None,)
    layer_groups: tuple[int, ...] = (0,)
    alignment: int = BLOCK
    kv_cache: Any = None
    event_synchronize: Callable[[Any], None] = lambda event: None
    words: int = VOCABULARY
    placeholder: int = PLACEHOLDER
    sizes: Sequence[int] = (1, 2, 3)
    picture: Callable[[int, random.Random], dict[str, Any]] = values
    apart: bool = False
    turns: bool = True
    prefill_width: int = 1


def ledger(scenario: Scenario, rows: int) -> Subject:
    """The model that stores tokens and answers digests."""
    model = LedgerModel(
        rows,
        scenario.blocks,
        contract=scenario.contract,
        window=scenario.window,
        recurrent=scenario.recurrent,
        sees=scenario.sees,
    )
    windows = (None,) if scenario.window is None else (None, scenario.window)
    alignment = 1 if scenario.recurrent else BLOCK
    return Subject(model, windows=windows, layer_groups=tuple(range(len(windows))), alignment=alignment)


class Engine:
    """A small engine that schedules at random but legally, keeps at most `depth` steps unread, and preempts when
    blocks run out."""

    ROWS = 4

    def __init__(self, scenario: Scenario, subject: Subject | None = None) -> None:
        self.s = scenario
        self.random = random.Random(scenario.seed)
        self.subject = subject or ledger(scenario, self.ROWS)
        self.model = self.subject.model
        self.windows = self.subject.windows
        self.runner = self._runner(scenario, self.subject)
        self.free = list(range(1, scenario.blocks))
        self.waiting = [self.ask(i) for i in range(scenario.requests)]
        self.everyone = list(self.waiting)
        self.running: list[Asked] = []
        self.unread: deque[tuple[dict[str, int], Any]] = deque()
        self.emitted: dict[str, int] = {}  # by the step that is scheduled: tokens of each request
        self.leaving: list[str] = []
        self.aborted: set[str] = set()

    def _runner(
        self, scenario: Scenario, subject: Subject, build: Callable[..., Runner] = Runner, **more: Any
    ) -> Runner:
        """build: makes it of its parts; more: of its configuration."""
        adapter = ModelAdapter(
            subject.model,
            rows=self.ROWS,
            vocab_size=subject.vocabulary,
            trace=TraceMode.of("all"),
            event_synchronize=subject.event_synchronize,
            multimodal=scenario.sees,
            mrope=scenario.sees and self.subject.turns,
        )
        adapter.kv_cache = subject.kv_cache
        adapter.layer_groups = subject.layer_groups
        adapter.prefill_width = subject.prefill_width
        tables = [PageTable(self.ROWS, 16, scenario.blocks) for _ in subject.windows]
        return build(
            RunnerConfig(alignment=subject.alignment, overlap=scenario.overlap, **more),
            adapter,
            RowTable(self.ROWS, scenario.lanes),
            PageTables(tables, subject.windows, BLOCK),
            RowSamplers(self.ROWS, subject.vocabulary, DeviceSampler(mode=scenario.mode), Argmax()),
            ReloadPlanner(resident_inputs=True),
            StepLog(),
        )

    def ask(self, number: int) -> Asked:
        rng = self.random
        host = rng.random() < 0.25
        prompt = [rng.randrange(self.subject.words) for _ in range(rng.randint(1, 22))]
        images = [self.place_image(prompt) for _ in range(rng.randrange(3))] if self.s.sees else []
        images.sort(key=lambda image: image.start)
        sampling = RowSampling(temperature=0, logit_bias={1: 0.0} if host else {})
        told = rng.random() < 0.7
        return Asked(f"r{number}", prompt, rng.randint(1, 12), sampling, told_its_end=told, images=images)

    def place_image(self, prompt: list[int]) -> Image:
        """Some tokens of the prompt become the placeholders of an image, others than those of another one."""
        rng, subject = self.random, self.subject
        length, near = rng.choice(subject.sizes), int(subject.apart)
        prompt += [0] * (length + 2 - len(prompt))
        around = [prompt[max(0, i - near) : i + length + near] for i in range(len(prompt) - length + 1)]
        places = [i for i, tokens in enumerate(around) if subject.placeholder not in tokens]
        if not places:
            prompt += [0] * (length + near)
            places = [len(prompt) - length]
        start = rng.choice(places)
        prompt[start : start + length] = [subject.placeholder] * length
        return Image(start, start + length, subject.picture(length, rng))

    def run(self) -> None:
        for _ in range(4000):
            if self.over():
                return
            self.step()
        raise AssertionError("the scenario does not end")

    def stop_of(self, r: Asked) -> int:
        """Tokens that it gets, unless it is aborted."""
        return r.max_tokens

    def over(self) -> bool:
        return all(r.finished for r in self.everyone) and not self.unread

    def step(self) -> None:
        while len(self.unread) >= (2 if self.s.overlap else 1):
            self.read()
        if self.random.random() < 0.03:
            self.abort()
        request = self.schedule()
        done = self.runner.execute(request)
        if request.scheduled:
            assert done is None
            self.unread.append((self.emitted, self.runner.sample()))
        else:
            assert done is not None
            if self.unread:
                self.read()

    # Scheduling

    def schedule(self) -> StepRequest:
        leaving, self.leaving = self.leaving, []
        self.emitted = {}
        can_decode = [r for r in self.running if self.decodable(r)]
        if (self.prefillable() and self.random.random() < 0.7) or not can_decode:
            request = self.schedule_prefill(leaving)
            if request.scheduled or not can_decode:
                return request
            leaving = list(request.leaving)
        return self.schedule_decode(leaving, can_decode)

    def decodable(self, r: Asked) -> bool:
        return r.running and r.computed >= r.target and len(r.output) + r.in_flight < r.max_tokens

    def prefillable(self) -> bool:
        return bool(self.waiting) or any(self.prefilling(r) for r in self.running)

    def prefilling(self, r: Asked) -> bool:
        return r.computed < r.target

    def schedule_prefill(self, leaving: list[str]) -> StepRequest:
        budget, scheduled, computed, grown, admissions = self.s.budget, {}, {}, {}, []
        for r in [r for r in self.running if self.prefilling(r)]:
            count = self.whole(r, r.computed, min(budget, r.target - r.computed))
            new = self.grow(r, r.computed + count)
            if count < 1 or new is None:
                continue
            computed[r.name], scheduled[r.name] = r.computed, count
            if new:
                grown[r.name] = new
            r.computed += count
            budget -= count
            self.emit(r, self.subject.prefill_width if r.computed == r.target else 0)
        for r in list(self.waiting):
            # A preempted request whose token is still unread is not resumed: the token is not in its history yet.
            if r.in_flight or not budget:
                continue
            r.lane = self.random.randrange(self.s.lanes)
            in_lane = sum(other.lane == r.lane for other in self.running)
            if in_lane >= self.ROWS // self.s.lanes:
                continue
            r.computed, r.target = 0, len(r.prompt) + len(r.output)
            count = self.whole(r, 0, min(budget, r.target))
            if count < 1 or self.grow(r, count) is None:
                continue
            ends_at = len(r.prompt) + r.max_tokens if r.told_its_end else None
            admissions.append(
                Admission(
                    r.name,
                    r.prompt,
                    list(r.output),
                    0,
                    self.table_of(r),
                    r.sampling,
                    r.lane,
                    ends_at=ends_at,
                    images=tuple(r.images),
                )
            )
            scheduled[r.name] = count
            r.computed, r.running = count, True
            budget -= count
            self.emit(r, self.subject.prefill_width if r.computed == r.target else 0)
            self.waiting.remove(r)
            self.running.append(r)
        return StepRequest(leaving, admissions, computed, grown, scheduled)

    def whole(self, r: Asked, start: int, count: int) -> int:
        """Of `count` tokens, those that may be computed now: a chunk ends inside no image."""
        cut = next((image for image in r.images if image.start < start + count < image.end), None)
        return count if cut is None else max(0, cut.start - start)

    def schedule_decode(self, leaving: list[str], rows: list[Asked]) -> StepRequest:
        scheduled, computed, grown = {}, {}, {}
        rows = [r for r in rows if self.random.random() < 0.95] or rows
        for r in rows:
            if not r.running:
                continue
            count = self.ahead(r)
            new = self.grow(r, r.computed + count)
            while new is None:
                victim = self.running[-1]
                leaving.append(victim.name)
                self.preempt(victim)
                for planned in (scheduled, computed, grown):
                    planned.pop(victim.name, None)
                if victim is r:
                    break
                new = self.grow(r, r.computed + count)
            if new is None:
                continue
            computed[r.name], scheduled[r.name] = r.computed, count
            if new:
                grown[r.name] = new
        going = [next(r for r in self.running if r.name == name) for name in scheduled]
        width = self.width(going)
        for r in going:
            r.computed += scheduled[r.name]
            self.emit(r, width)
        return StepRequest(leaving, [], computed, grown, scheduled)

    def ahead(self, r: Asked) -> int:
        """Tokens that a decode step computes of it."""
        return 1

    def width(self, going: list[Asked]) -> int:
        """Tokens that each of these emits in a decode step of theirs."""
        return 1

    def emit(self, r: Asked, count: int) -> None:
        self.emitted[r.name] = count
        r.in_flight += count

    def slots(self, tokens: int) -> int:
        """Positions to have blocks for, when so many tokens are computed."""
        return tokens

    def grow(self, r: Asked, tokens: int) -> list[list[int]] | None:
        """Blocks of each group for so many tokens; empty when there are enough, None when the pool has too few."""
        r.blocks = r.blocks or [[] for _ in self.windows]
        self.slide(r)
        need = max(0, -(-self.slots(tokens) // BLOCK) - len(r.blocks[0]))
        if need * len(r.blocks) > len(self.free):
            return None
        new = [[self.free.pop(self.random.randrange(len(self.free))) for _ in range(need)] for _ in r.blocks]
        for blocks, more in zip(r.blocks, new, strict=True):
            blocks += more
        return new if need else []

    def slide(self, r: Asked) -> None:
        """As vLLM does: what the next token to compute cannot see goes back to the pool, and nobody is told."""
        for blocks, window in zip(r.blocks, self.windows, strict=True):
            for i in range(max(0, r.computed + 1 - window) // BLOCK if window else 0):
                if blocks[i] is not None:
                    self.free.append(blocks[i])
                    blocks[i] = None

    def table_of(self, r: Asked) -> list[list[int]]:
        return [[block or 0 for block in blocks] for blocks in r.blocks]

    def preempt(self, r: Asked) -> None:
        self.running.remove(r)
        self.release(r)
        r.running, r.computed = False, 0
        self.waiting.insert(0, r)

    def release(self, r: Asked) -> None:
        self.free += [block for blocks in r.blocks for block in blocks if block is not None]
        r.blocks = []

    # Results

    def read(self) -> None:
        emitted, flight = self.unread.popleft()
        result: StepResult = flight.result() if isinstance(flight, InFlight) else flight
        assert sorted(result.request_ids) == sorted(emitted)
        for name, ids in zip(result.request_ids, result.token_ids, strict=True):
            r = next(r for r in self.everyone if r.name == name)
            if emitted[name] and not r.finished:
                r.in_flight -= emitted[name]
                self.take(r, list(ids), emitted[name])

    def take(self, r: Asked, ids: list[int], emitted: int) -> None:
        assert len(ids) == emitted
        r.output += ids
        if len(r.output) >= r.max_tokens:
            self.finish(r)

    def finish(self, r: Asked) -> None:
        r.finished = True
        if r.running:
            self.running.remove(r)
            self.release(r)
            self.leaving.append(r.name)
        else:
            self.waiting.remove(r)

    def abort(self) -> None:
        alive = [r for r in self.everyone if not r.finished]
        if alive:
            r = self.random.choice(alive)
            self.aborted.add(r.name)
            self.finish(r)
