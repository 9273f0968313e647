"""One policy setting to simulate, and how it is written on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tt_scheduler.interleave import InterleaveOptions
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.simulate.cost import CostModel
from tt_scheduler.simulate.lane import EngineSize
from tt_scheduler.simulate.run import Run, Simulation
from tt_scheduler.simulate.workload import Arrival
from tt_scheduler.target import Chunking

SHORT = {
    "enabled": "decode_interleave_enabled",
    "prefill_steps": "decode_interleave_prefill_steps",
    "decode_steps": "decode_interleave_decode_steps",
    "target_itl_ms": "decode_interleave_target_itl_ms",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, interleave options, and the chunk.

    chunk:  prompt tokens of a prefill step; None leaves prompts whole
    """

    name: str
    options: InterleaveOptions = field(default_factory=InterleaveOptions)
    chunk: int | None = None

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Read `NAME` or `NAME:KEY=VALUE,...`; keys are chunk, enabled, prefill_steps, decode_steps, target_itl_ms."""
        name, _, settings = text.rpartition(":")
        if "=" not in settings:
            name, settings = text, ""
        values: dict[str, object] = {}
        chunk: int | None = None
        for setting in filter(None, settings.split(",")):
            key, _, value = setting.partition("=")
            if key == "chunk":
                chunk = int(value)
            elif key in SHORT:
                values[SHORT[key]] = _value(value)
            else:
                raise ValueError(f"{text!r}: {key!r} is not one of chunk, {', '.join(SHORT)}")
        return cls(name, InterleaveOptions.from_mapping(values), chunk)

    def run(
        self,
        workload: Sequence[Arrival],
        cost: CostModel,
        size: EngineSize,
        overlapped: bool = True,
        progress: Callable[[float], None] = lambda share: None,
    ) -> Run:
        """Simulate this setting. `size.budget` is the prefill budget when prompts stay whole."""
        whole = self.chunk is None
        size = replace(size, chunked=not whole, budget=self.chunk or size.budget)
        policy = PhasePolicy(self.options, Chunking(not whole, size.block))
        return Simulation(workload, cost, size, policy, overlapped, progress).run()


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    number = float(text)
    return int(number) if number.is_integer() else number
