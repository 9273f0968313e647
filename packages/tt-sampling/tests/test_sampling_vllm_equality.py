"""The fast sampler against vLLM's own, on everything that is not a matter of chance."""

import random
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

pytestmark = pytest.mark.vllm

VOCAB = 320
ROWS = 10
BATCHES = 100


def some(chance: random.Random, share: float, make: object, otherwise: object = None) -> object:
    return make() if chance.random() < share else otherwise  # type: ignore[operator]


def random_params(kit: SimpleNamespace, chance: random.Random) -> object:
    """Any mixture of what a request can ask."""

    def token() -> int:
        return chance.randrange(VOCAB)

    greedy = chance.random() < 0.5
    params = kit.SamplingParams(
        temperature=0.0 if greedy else chance.choice([0.3, 0.7, 1.0, 1.8]),
        top_k=some(chance, 0.4, lambda: chance.choice([2, 7, 50, VOCAB, 400]), 0),
        top_p=some(chance, 0.4, lambda: chance.choice([0.1, 0.5, 0.9, 0.99]), 1.0),
        min_p=some(chance, 0.3, lambda: chance.choice([0.001, 0.05, 0.4]), 0.0),
        presence_penalty=some(chance, 0.3, lambda: chance.uniform(-2, 2), 0.0),
        frequency_penalty=some(chance, 0.3, lambda: chance.uniform(-2, 2), 0.0),
        repetition_penalty=some(chance, 0.3, lambda: chance.uniform(0.5, 2), 1.0),
        seed=some(chance, 0.5, lambda: chance.randrange(-(2**63), 2**63)),
        logprobs=some(chance, 0.5, lambda: chance.choice([0, 1, 5, 20, -1])),
        min_tokens=some(chance, 0.3, lambda: chance.choice([1, 5, 30]), 0),
        stop_token_ids=some(chance, 0.5, lambda: [token() for _ in range(3)]),
        logit_bias=some(chance, 0.3, lambda: {token(): chance.uniform(-100, 100) for _ in range(4)}),
        allowed_token_ids=some(chance, 0.2, lambda: [token() for _ in range(chance.choice([2, 100]))]),
        max_tokens=50,
    )
    if chance.random() < 0.3:
        params._bad_words_token_ids = [
            [chance.randrange(4) for _ in range(chance.choice([0, 1, 2]))] + [token()] for _ in range(8)
        ]
    return params


class Pair:
    """The same requests in both samplers."""

    def __init__(self, kit: SimpleNamespace, config: object, chance: random.Random) -> None:
        self.chance = chance
        self.samplers = [kit.HostSampling(config, ROWS + 2, VOCAB, always_compat=compat) for compat in (False, True)]
        self.rows = chance.sample(range(ROWS + 2), ROWS)
        self.params = [random_params(kit, chance) for _ in self.rows]
        self.outputs = [[chance.randrange(4) for _ in range(chance.choice([0, 1, 12]))] for _ in self.rows]
        for sampler in self.samplers:
            for row, params, output in zip(self.rows, self.params, self.outputs, strict=True):
                sampler.admit(row, params, [3, 3, 5, 90 + row, 200], output)

    def step(self, logits: "torch.Tensor", grammar: object = None) -> list[SimpleNamespace]:
        return [sampler.sample(logits.clone(), self.rows, grammar=grammar) for sampler in self.samplers]

    def take(self) -> None:
        """Every request emits a token, the same for both samplers."""
        for output in self.outputs:
            output.append(self.chance.randrange(4))


def masks_of(kit: SimpleNamespace, chance: random.Random, rows: list[int]) -> object:
    masked = chance.sample(rows, 3)
    words = numpy.array(
        [[chance.getrandbits(32) - 2**31 for _ in range(VOCAB // 32)] for _ in masked], dtype=numpy.int32
    )
    return kit.Grammar(words, {row: i for i, row in enumerate(masked)})


def dense(sample: SimpleNamespace, line: int, count: int) -> "torch.Tensor":
    """The scores of a row by token, from its list of the top `count`; -inf where the list says so or nothing."""
    scores = torch.full((VOCAB,), float("-inf"))
    ids = torch.from_numpy(sample.logprobs.logprob_token_ids[line, 1 : count + 1]).long()
    assert len(set(ids.tolist())) == count
    scores[ids] = torch.from_numpy(sample.logprobs.logprobs[line, 1 : count + 1])
    # In a batch with any top-p vLLM drops what underflows in float32, from rows without top-p as well.
    return scores.masked_fill_(scores < scores.max() - 80, float("-inf"))


def asked(params: object) -> int | None:
    return VOCAB if params.logprobs == -1 else params.logprobs  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"])
def test_equal_on_1000_parameter_sets(vllm_kit: SimpleNamespace, mode: str) -> None:
    """Greedy tokens, logprobs, ranks and every mask. In the processed modes the full list of a row shows what is left
    after bans, bias, penalties, temperature, min-p, top-k and top-p: the distribution that is drawn from."""
    config = vllm_kit.config(logprobs_mode=mode)
    chance = random.Random(mode)
    for batch in range(BATCHES // 4):
        pair = Pair(vllm_kit, config, chance)
        for _ in range(4):
            logits = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(batch)) * 3
            grammar = masks_of(vllm_kit, chance, pair.rows) if chance.random() < 0.5 else None
            ours, reference = pair.step(logits, grammar)
            compare(pair, ours, reference)
            pair.take()


def compare(pair: Pair, ours: SimpleNamespace, reference: SimpleNamespace) -> None:
    assert (ours.logprobs is None) == (reference.logprobs is None)
    for line, params in enumerate(pair.params):
        greedy = params.temperature < 1e-5
        if greedy:
            assert ours.token_ids[line] == reference.token_ids[line], params
        count = asked(params)
        if count is None or numpy.isnan(reference.logprobs.logprobs[line]).any():
            continue  # NaN: allowed ids and grammar have no token in common
        torch.testing.assert_close(dense(ours, line, count), dense(reference, line, count), atol=1e-5, rtol=1e-5)
        assert ours.logprobs.logprob_token_ids[line, 0] == ours.token_ids[line]
        if greedy:
            own, theirs = ours.logprobs.logprobs[line, 0], reference.logprobs.logprobs[line, 0]
            assert own == theirs or abs(own - theirs) <= 1e-5
            assert ours.logprobs.sampled_token_ranks[line] == reference.logprobs.sampled_token_ranks[line]
