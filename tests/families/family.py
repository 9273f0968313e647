"""A kind of model: how to write a small one, what it must answer, and which features it has.

A module named `<name>_family.py` in this folder that defines FAMILY adds one: nothing else has to know it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

from launch import Run

FEATURES = (
    "prefill",
    "decode",
    "chunks",
    "prefix cache",
    "async",
    "preempt/resume",
    "lanes",
    "device sampling",
    "host sampling",
    "logprobs",
    "images",
)


@dataclass(frozen=True)
class Asked:
    """A greedy request. media: what `Family.prompt` makes multimodal data of; params: more SamplingParams."""

    prompt: list[int]
    max_tokens: int
    media: tuple[Any, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)


class Reference(Protocol):
    """The plain way to run a checkpoint: one request at a time, float32."""

    def answer(self, asked: Asked) -> list[int]:
        """Greedy token ids, the end-of-sequence token included."""
        ...

    def logprobs(self, asked: Asked, answer: Sequence[int]) -> Any:
        """float32 [len(answer), vocabulary]: what each token of the answer was chosen by."""
        ...


@dataclass(frozen=True)
class Works:
    """The feature works.

    check: a test of its own instead of the usual one (features.py); it is given a `served.Served`
    run:   what its engine is started with, besides the family's settings, instead of the feature's usual run
    """

    check: Callable[[Any], None] | None = None
    run: Run | None = None


@dataclass(frozen=True)
class Refused:
    """The feature is asked for and not given, by the rule of this name.

    says: words of the launch's error, of the line that is logged when the rule turns the feature off, or of the
          request's error
    how:  "launch" | "turned off" | "request"
    run:  what asks for it, besides the family's settings; request: the same of a request that is refused
    """

    rule: str
    says: str
    how: str = "launch"
    run: Run = field(default_factory=Run)
    request: Asked | None = None


def turned_off(rule: str, says: str) -> Refused:
    """What the usual run asks for, and this rule turns off."""
    return Refused(rule, says, how="turned off")


@dataclass(frozen=True)
class NotApplicable:
    """The feature has no meaning for this family."""

    why: str


Cell = Works | Refused | NotApplicable
TEXT_ONLY = NotApplicable("a text model")


def token_prompt(asked: Asked) -> Any:
    return list(asked.prompt)


@dataclass(frozen=True, kw_only=True)
class Family:
    """One row of the table.

    label:        what it stands for, in the words of the docs
    architecture: as in the checkpoint's config.json
    target:       `module:Class` of the software mesh
    write:        writes a small random checkpoint into a folder
    reference:    makes the reference of such a checkpoint
    requests:     twelve of different lengths, some with a common prefix (see requests.py)
    settings:     what all its engines are started with, besides the usual
    few_blocks:   on top of it, a KV cache so small that the twelve requests must be preempted
    unserved:     why this vLLM release cannot read such a checkpoint; empty: it can
    cells:        what is said of each feature; one that is left out is `Works()`
    """

    name: str
    label: str
    architecture: str
    target: str
    write: Callable[[Path], None]
    reference: Callable[[Path], Reference]
    requests: Sequence[Asked]
    settings: Run = field(default_factory=Run)
    few_blocks: Run = field(default_factory=lambda: Run(environ={"TT_HOST_MAX_TOKENS_ALL_USERS": "512"}))
    prompt: Callable[[Asked], Any] = token_prompt
    unserved: Callable[[], str] = lambda: ""
    cells: Mapping[str, Cell] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := set(self.cells) - set(FEATURES):
            raise ValueError(f"{self.name}: {sorted(unknown)} are no features: allowed are {', '.join(FEATURES)}")

    def cell(self, feature: str) -> Cell:
        return self.cells.get(feature, Works())


def families() -> dict[str, Family]:
    """Every family by its name, in the order of the names of their modules."""
    here = Path(__file__).parent
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    found = [importlib.import_module(path.stem).FAMILY for path in sorted(here.glob("*_family.py"))]
    return {family.name: family for family in found}
