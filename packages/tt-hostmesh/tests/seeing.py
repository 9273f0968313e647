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


# What every model with images must do. see(**more): a Seer over a new model; answer(tokens, images, count): what
# transformers generates.


def check_mixed_rows(see, answer, tools, device):
    """Rows with and without images, some of which join the others."""
    seer = see(batch=6)
    sampling = tools.params(6) if device else None
    requests = [seer.admit(asked, row) for row, asked in enumerate(ASKED[:3])]
    seer.prefill(requests, sampling=tools.params(3) if device else None)
    seer.decode(sampling)
    requests += [seer.admit(asked, row) for row, asked in enumerate(ASKED[3:], 3)]
    seer.prefill(requests[3:], sampling=tools.params(2) if device else None)
    for _ in range(12):
        seer.decode(sampling)
    for request, (tokens, images) in zip(requests, ASKED, strict=True):
        assert request.tokens[len(tokens) :] == answer(tokens, images, len(request.tokens) - len(tokens))


def check_chunks(see, answer, cut):
    """A request in chunks that end at `cut`; where they begin is rounded down, so it may lie in an image."""
    seer = see()
    tokens, images = ASKED[4]
    request = seer.admit(ASKED[4], 1)
    for end in [*cut, len(tokens)]:
        request.computed -= request.computed % 16
        seer.prefill([request], [end], final=end == len(tokens))
    for _ in range(6):
        seer.decode()
    assert request.tokens[len(tokens) :] == answer(tokens, images, 7)


def check_cached_prefix(see, answer):
    """A second request has the first one's blocks, with an image in them."""
    seer = see()
    asked = prompt(10, (4, 5), 30)
    first = seer.admit(asked, 0)
    seer.prefill([first])
    tokens, images = asked[0] + text(9, 99), asked[1]
    second = seer.admit((tokens, images), 1, blocks=first.blocks[:3], computed=48)
    seer.prefill([second])
    for _ in range(6):
        seer.decode()
    assert second.tokens[len(tokens) :] == answer(tokens, images, 7)


def check_lanes(see, answer, tools):
    """Rows of two lanes with rope deltas of their own."""
    seer = see(lanes=2, batch=6)
    requests = [seer.admit(asked, row) for asked, row in zip(ASKED, (0, 2, 3, 5), strict=False)]
    seer.prefill(requests, sampling=tools.params(4))
    for _ in range(5):
        seer.decode(tools.params(6))
    for request, (tokens, images) in zip(requests, ASKED, strict=False):
        assert request.tokens[len(tokens) :] == answer(tokens, images, 6)
