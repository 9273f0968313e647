"""Whether a model class is given images in a way that it understands."""

from __future__ import annotations

import inspect


def takes_images(model_class: type, *, declared: bool | None) -> bool:
    """Whether images may be sent to this class. declared: what a table says of it; None: no table knows the class.

    An unknown class says it with vLLM's own mark. One that names `images` and not `pixel_values` in `prefill_forward`
    waits for images in a form that is sent no more, and would answer as if there were none.
    Source: tt-metal contract 1.5.
    """
    said = bool(getattr(model_class, "supports_multimodal", False)) if declared is None else declared
    prefill = getattr(model_class, "prefill_forward", None)
    if not said or not callable(prefill):
        return said
    named = inspect.signature(prefill).parameters
    return "images" not in named or "pixel_values" in named
