"""Requests about images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from family import Asked


def picture(width: int, height: int, seed: int) -> Any:
    """A random image of so many pixels."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def prompt(asked: Asked) -> Any:
    """As vLLM takes it: one mark for each image."""
    given: dict[str, Any] = {"prompt_token_ids": list(asked.prompt)}
    return {**given, "multi_modal_data": {"image": list(asked.media)}} if asked.media else given


def placed(asked: Asked, images: Sequence[tuple[int, Any]], mark: Sequence[int]) -> Asked:
    """The request with these images, each put before the token of its number; mark: what stands for one."""
    tokens = list(asked.prompt)
    for at, _ in reversed(images):
        tokens[at:at] = mark
    return replace(asked, prompt=tokens, media=tuple(image for _, image in images))


class SeeingReference(ABC):
    """A model of transformers that takes images, asked one request at a time."""

    model: Any

    @abstractmethod
    def inputs(self, asked: Asked, answer: Sequence[int] = ()) -> dict[str, Any]:
        """What the model is called with for a request and what was answered to it so far."""

    def answer(self, asked: Asked) -> list[int]:
        given = self.inputs(asked)
        with torch.no_grad():
            output = self.model.generate(**given, max_new_tokens=asked.max_tokens, do_sample=False, pad_token_id=0)
        return output[0, given["input_ids"].shape[1] :].tolist()

    def logprobs(self, asked: Asked, answer: Sequence[int]) -> torch.Tensor:
        given = self.inputs(asked, answer)
        with torch.no_grad():
            logits = self.model(**given).logits[0, -len(answer) - 1 : -1]
        return logits.float().log_softmax(-1)
