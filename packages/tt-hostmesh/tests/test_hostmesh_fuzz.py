"""Random but correct plugins: strict mode never complains, and every request gets the tokens it gets alone."""

import random
from collections import Counter

import pytest

BLOCK, VOCABULARY = 16, 160


class Plugin:
    """Random arrivals, chunks, shared prefixes, finishes, skipped rows and sampling places over one driver."""

    def __init__(self, driver, tools, seed):
        self.driver, self.tools, self.random = driver, tools, random.Random(seed)
        self.holders = Counter()
        self.releases = self.random.random() < 0.5
        self.done = []

    def run(self, steps):
        for _ in range(steps):
            waiting = [r for r in self.driver.live.values() if r.computed < r.prompt_length]
            if waiting and self.random.random() < 0.7:
                self.prefill(self.random.sample(waiting, self.random.randint(1, len(waiting))))
            elif self.random.random() < 0.3:
                self.admit()
            elif len(self.driver.live) > len(waiting):
                self.decode()
        self.done += self.driver.live.values()

    def admit(self):
        rows = sorted(set(range(self.driver.batch)) - set(self.driver.live))
        if not rows:
            return
        row = self.random.choice(rows)
        prefix, blocks = self.shared_prefix(row)
        own = [self.random.randrange(VOCABULARY) for _ in range(self.random.randint(1, 60))]
        request = self.driver.admit(prefix + own, row, blocks=blocks, computed=len(prefix))
        request.prompt_length = len(request.tokens)
        self.holders.update((self.driver.lane(row), block) for block in blocks)

    def shared_prefix(self, row):
        """Full blocks that a live request of the lane has computed."""
        others = [r for r in self.driver.live.values() if self.driver.lane(r.row) == self.driver.lane(row)]
        if not others or self.random.random() < 0.5:
            return [], []
        other = self.random.choice(others)
        full = self.random.randint(0, min(other.computed, len(other.tokens) - 1, 96) // BLOCK)
        return other.tokens[: full * BLOCK], other.blocks[:full]

    def prefill(self, requests):
        ends = []
        for request in requests:
            left = request.prompt_length - request.computed
            ends.append(request.computed + (left if self.random.random() < 0.6 else self.random.randint(1, left)))
        final = [end == request.prompt_length for request, end in zip(requests, ends, strict=True)]
        device = all(final) and self.random.random() < 0.5
        sampling = self.tools.params(len(requests)) if device else None
        before = {id(request): len(request.blocks) for request in requests}
        out = self.driver.prefill(requests, ends, sampling, final=False)
        tokens = out[0][:, 0] if device else out[:, -1].argmax(-1)
        for request, token, last in zip(requests, tokens.tolist(), final, strict=True):
            self.hold(request, before[id(request)])
            if last:
                request.tokens.append(token)

    def decode(self):
        ready = {r: q for r, q in self.driver.live.items() if q.computed >= q.prompt_length}
        scheduled = {r: q for r, q in ready.items() if self.random.random() < 0.9} or ready
        everybody, self.driver.live = self.driver.live, scheduled
        before = {row: len(request.blocks) for row, request in scheduled.items()}
        device = self.random.random() < 0.7
        for _ in range(self.random.randint(1, 4)):
            self.driver.decode(self.tools.params(self.driver.batch) if device else None)
        self.driver.live = everybody
        for row, request in scheduled.items():
            self.hold(request, before[row])
            if len(request.tokens) > 100 or self.random.random() < 0.1:
                self.finish(request)

    def hold(self, request, known):
        lane = self.driver.lane(request.row)
        self.holders.update((lane, block) for block in request.blocks[known:])

    def finish(self, request):
        lane = self.driver.lane(request.row)
        del self.driver.live[request.row]
        if self.releases:
            self.driver.model.release_request(request.row)
        for block in reversed(request.blocks):
            self.holders[lane, block] -= 1
            if not self.holders[lane, block]:
                self.driver.free[lane].append(block)
        self.done.append(request)


@pytest.mark.parametrize("seed", range(18))
def test_a_correct_plugin_is_never_refused_and_always_exact(load, reference, tools, seed):
    lanes = (1, 2, 4)[seed % 3]
    driver = load((tools.V1, tools.Legacy)[seed % 2], lanes=lanes, batch=4, blocks=40)
    plugin = Plugin(driver, tools, seed)
    plugin.run(60)
    checked = 0
    for request in plugin.done:
        made = request.tokens[request.prompt_length :]
        if made:
            assert made == reference(request.tokens[: request.prompt_length], len(made)), request.row
            checked += len(made)
    assert checked > 20
