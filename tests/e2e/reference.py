"""The plain reference: transformers' greedy `generate`, one prompt at a time, float32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass(frozen=True)
class Case:
    """One request: `chat` is a user message; else the prompt is exactly `tokens` tokens of running text."""

    name: str
    max_tokens: int
    chat: str | None = None
    tokens: int = 0


QUESTIONS = (
    "What is the capital of France?",
    "Name three primary colours.",
    "Write one sentence about the sea.",
    "How many legs does a spider have?",
)
LENGTHS = (5, 8, 13, 31, 32, 33, 63, 64, 65, 97, 128, 160, 200, 255, 256, 257, 320, 450, 640, 900)
CASES = tuple(Case(f"chat{i}", 12 + 9 * i, chat=text) for i, text in enumerate(QUESTIONS)) + tuple(
    Case(f"raw{length}", 1 + (7 * i) % 40, tokens=length) for i, length in enumerate(LENGTHS)
)


class Reference:
    """Prompts and greedy answers of a checkpoint."""

    def __init__(self, checkpoint: Path, text: str) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
        self._model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
        self._answers: dict[str, list[int]] = {}
        self._text = self.tokenizer(text)["input_ids"]

    def prompt(self, case: Case) -> list[int]:
        """The case's prompt as token ids. Raw prompts start at different places, so that no two share a prefix."""
        if case.chat is not None:
            messages = [{"role": "user", "content": case.chat}]
            encoded = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
            return list(encoded["input_ids"])
        start = (37 * case.tokens) % (len(self._text) - case.tokens)
        return self._text[start : start + case.tokens]

    def answer(self, case: Case) -> list[int]:
        """Token ids that transformers generates, the end-of-sequence token included. Computed once a case."""
        if case.name not in self._answers:
            self._answers[case.name] = self._generate(case)
        return self._answers[case.name]

    def _generate(self, case: Case) -> list[int]:
        prompt = torch.tensor([self.prompt(case)])
        with torch.no_grad():
            output = self._model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=case.max_tokens, do_sample=False
            )
        return output[0, prompt.shape[1] :].tolist()
