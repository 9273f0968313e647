"""A plugin in small for Qwen's vision models, and prompts with images for it."""

from __future__ import annotations

import random

import torch

IMAGE, VIDEO, START, END = 150, 151, 152, 153
PATCH = 3 * 2 * 4 * 4
"""Values of a patch: two frames of 4 x 4 pixels."""


def image(height, width, seed=0):
    """A random image of so many merged patches: its pixels and its grid, as a processor gives them."""
    grid = torch.tensor([1, 2 * height, 2 * width])
    noise = torch.Generator().manual_seed(1000 * height + 10 * width + seed)
    return torch.randn(int(grid.prod()), PATCH, generator=noise), grid


def text(count, seed=0):
    return [random.Random(f"{count}/{seed}").randrange(140) for _ in range(count)]


def prompt(*parts):
    """Tokens and images: numbers stand for so many tokens of text, pairs for images of so many merged patches."""
    tokens, images = [], []
    for i, part in enumerate(parts):
        if isinstance(part, int):
            tokens += text(part, i)
        else:
            images.append(image(*part))
            tokens += [START, *[IMAGE] * (part[0] * part[1]), END]
    return tokens, images


class Seer:
    """The plugin in small for a model with images: hands them over, keeps the rope deltas."""

    def __init__(self, driver):
        self.driver = driver
        self.rows = ()

    def admit(self, asked, row, **more):
        request = self.driver.admit(asked[0], row, **more)
        request.images, request.delta = asked[1], None
        return request

    def media(self, requests, ends):
        """The images that begin before each chunk's end."""
        keywords = {"pixel_values": [], "image_grid_thw": []}
        for request, end in zip(requests, ends, strict=True):
            used, mine = 0, []
            places = [i for i, token in enumerate(request.tokens[:end]) if token == IMAGE]
            for one in request.images:
                if used < len(places):
                    mine.append(one)
                used += int(one[1].prod()) // 4
            for name, index in (("pixel_values", 0), ("image_grid_thw", 1)):
                keywords[name].append([one[index] for one in mine] or None)
        return keywords

    def prefill(self, requests, ends=None, sampling=None, final=True, **changes):
        call = self.driver.prefill_call(requests, ends, sampling)
        call |= self.media(requests, call["prompt_lens"].tolist())
        out, deltas = self.driver.model.prefill_forward(**{**call, **changes})
        for request, end, delta in zip(requests, call["prompt_lens"].tolist(), deltas, strict=True):
            request.computed, request.delta = end, int(delta.item())
        if final:
            tokens = out[0][:, 0] if sampling is not None else out[:, -1].argmax(-1)
            for request, token in zip(requests, tokens.tolist(), strict=True):
                request.tokens.append(token)
        self.driver.fresh = True

    def decode(self, sampling=None, **changes):
        live = self.driver.live
        news = self.driver.fresh or self.rows != tuple(sorted(live))
        deltas = [live[row].delta if row in live else 0 for row in range(max(live) + 1)] if news else None
        self.driver.decode(sampling, **{"rope_deltas_all_users": deltas, **changes})
        self.rows = tuple(sorted(live))


ASKED = (
    prompt(20),
    prompt(5, (2, 3), 9),
    prompt((4, 5), 3, (1, 2), 12),
    prompt(11, (3, 3)),
    prompt(40, (5, 2), (2, 5), 1),
)
"""The last one: 65 tokens, images at 41..50 and 53..62."""


def generated(model, tokens, images, count):
    """What transformers generates."""
    ids = torch.tensor([tokens])
    more = {}
    if images:
        more["pixel_values"] = torch.cat([pixels for pixels, _ in images])
        more["image_grid_thw"] = torch.stack([grid for _, grid in images])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == IMAGE).int(),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        **more,
    )
    return out[0, len(tokens) :].tolist()
