"""Greedy tokens equal those of transformers in float32, whatever way the plugin takes through the contract."""

import random

import pytest

PROMPTS = [[random.Random(i).randrange(160) for _ in range(n)] for i, n in enumerate((5, 16, 33, 90, 17, 1, 64, 48))]


@pytest.mark.parametrize("device", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("protocol", ["V1", "Legacy"])
def test_rows_of_mixed_lengths_decode_like_transformers(load, reference, tools, protocol, device):
    driver = load(getattr(tools, protocol), batch=8)
    requests = [driver.admit(prompt, row) for row, prompt in enumerate(PROMPTS)]
    driver.prefill(requests[:5], sampling=tools.greedy(5) if device else None)
    driver.prefill(requests[5:], sampling=tools.greedy(3) if device else None)
    for _ in range(20):
        driver.decode(tools.greedy(8) if device else None)
    for request, prompt in zip(requests, PROMPTS, strict=True):
        assert request.tokens[len(prompt) :] == reference(prompt, 21)
