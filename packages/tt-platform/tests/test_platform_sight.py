"""Which classes are sent images."""

from __future__ import annotations

from typing import Any

import pytest

from tt_platform.sight import takes_images


class Open:
    def prefill_forward(self, tokens: Any, **kwargs: Any) -> None: ...


class Pixels:
    def prefill_forward(self, tokens: Any, pixel_values: Any = None, images: Any = None) -> None: ...


class Former:
    """Mistral 3 and Mllama of some ages: a form that nothing sends any more."""

    def prefill_forward(self, tokens: Any, images: Any = None, **kwargs: Any) -> None: ...


class Marked(Open):
    supports_multimodal = True


@pytest.mark.parametrize(
    ("model_class", "declared", "takes"),
    [
        (Open, True, True),
        (Open, False, False),
        (Pixels, True, True),
        (Former, True, False),
        (object, True, True),
        (Marked, None, True),
        (Open, None, False),
        (Marked, False, False),
    ],
)
def test_a_class_is_sent_images_when_it_is_said_to_take_them_and_knows_their_form(
    model_class: type, declared: bool | None, takes: bool
) -> None:
    """Fails when a class that waits for another keyword is given images that it would ignore."""
    assert takes_images(model_class, declared=declared) is takes
