"""transformers as the reference of a text model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from family import Asked
from transformers import AutoModelForCausalLM


class TransformersReference:
    """float32, one request at a time, eager attention (which knows sinks and soft caps)."""

    def __init__(self, checkpoint: Path, model_class: Any = AutoModelForCausalLM) -> None:
        self.model: Any = model_class.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager")

    def answer(self, asked: Asked) -> list[int]:
        ids = torch.tensor([asked.prompt])
        with torch.no_grad():
            output = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=asked.max_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        return output[0, len(asked.prompt) :].tolist()

    def logprobs(self, asked: Asked, answer: Sequence[int]) -> torch.Tensor:
        ids = torch.tensor([[*asked.prompt, *answer]])
        with torch.no_grad():
            logits = self.model(ids).logits[0, len(asked.prompt) - 1 : -1]
        return logits.float().log_softmax(-1)
