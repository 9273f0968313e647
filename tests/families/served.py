"""One family's engines, one at a time: a feature's test gets the one that its run needs, started once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from family import Asked, Family, Reference
from launch import Engine, Run, launched
from mixture import on_device

USUAL = Run({"max_model_len": 384, "max_num_seqs": 8, "skip_tokenizer_init": True})
DEVICE = Run(
    {
        "max_num_batched_tokens": 96,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "async_scheduling": True,
    },
    {"sample_on_device_mode": "all"},
)
HOST = Run()


class Answers:
    """What the reference says, asked once a request."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._known: dict[int, tuple[Asked, list[int]]] = {}

    def of(self, asked: Asked) -> list[int]:
        if id(asked) not in self._known:
            same = next((a for other, a in self._known.values() if _same(other, asked)), None)
            self._known[id(asked)] = (asked, self.reference.answer(asked) if same is None else same)
        return self._known[id(asked)][1]


def _same(one: Asked, other: Asked) -> bool:
    return (one.prompt, one.max_tokens) == (other.prompt, other.max_tokens) and one.media is other.media


@dataclass
class Served:
    """A running engine of a family. messages: what the platform's rules said since its launch began; outputs: vLLM's,
    of the last call."""

    family: Family
    engine: Engine
    answers: Answers
    messages: list[str] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    @cached_property
    def batch(self) -> tuple[Asked, ...]:
        """The family's requests, run to their end all at once, exactly as the reference, on the device alone."""
        asked = on_device(tuple(self.family.requests))
        self.exact(asked)
        return asked

    def exact(self, asked: Sequence[Asked]) -> None:
        """Run these at once. Fails unless every answer is the reference's, token by token."""
        outputs = self.generate(asked)
        wrong = {
            i: (list(output.token_ids), self.answers.of(one))
            for i, (one, output) in enumerate(zip(asked, outputs, strict=True))
            if list(output.token_ids) != self.answers.of(one)
        }
        assert not wrong

    def generate(self, asked: Sequence[Asked], **params: Any) -> list[Any]:
        from vllm import SamplingParams

        usual = {"temperature": 0, "detokenize": False}
        wanted = [SamplingParams(**{**usual, "max_tokens": one.max_tokens, **one.params, **params}) for one in asked]
        self.outputs = self.engine.generate([self.family.prompt(one) for one in asked], wanted)
        return [output.outputs[0] for output in self.outputs]


class _Kept(logging.Filter):
    """Keeps what a logger says. No handler: vLLM sets up its loggers with a process's first engine, and those below
    them lose their handlers then."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.messages.append(record.getMessage())
        return True


class Launcher:
    """Keeps the last engine until another one is asked for."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._written: dict[str, tuple[Path, Answers]] = {}
        self._running: tuple[tuple[str, str], Served] | None = None
        self._stack = ExitStack()

    def served(self, family: Family, name: str, run: Run) -> Served:
        """The engine of this family for the run of this name."""
        if self._running is None or self._running[0] != (family.name, name):
            self.stop()
            self._running = ((family.name, name), self._start(family, run))
        return self._running[1]

    def launch(self, family: Family, run: Run) -> None:
        """Start an engine that must not start. Whatever it raises passes."""
        self.stop()
        self._start(family, run)
        self.stop()

    def stop(self) -> None:
        self._running = None
        self._stack.close()

    def _start(self, family: Family, run: Run) -> Served:
        checkpoint, answers = self._checkpoint(family)
        log = _Kept()
        rules = logging.getLogger("vllm.tt.platform")
        rules.addFilter(log)
        self._stack.callback(rules.removeFilter, log)
        whole = run.over(family.settings).over(USUAL)
        engine = self._stack.enter_context(launched(whole, checkpoint, self._folder("steps")))
        return Served(family, engine, answers, log.messages)

    def _checkpoint(self, family: Family) -> tuple[Path, Answers]:
        if family.name not in self._written:
            folder = self._folder(family.name)
            family.write(folder)
            self._written[family.name] = (folder, Answers(family.reference(folder)))
        return self._written[family.name]
