"""The device's sampler: deterministic where it must be, the right distribution where it may not."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tt_hostmesh.sampling import MAX_TOP_K, SamplingTable, TokenCounts, sample, uniforms

NEUTRAL = {
    "temperature": 1.0,
    "top_k": 32,
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
    "num_logprobs": -2,
    "enable_log_probs": False,
}


def table(rows, **columns):
    lists = {name: [value] * rows for name, value in NEUTRAL.items()}
    lists |= {name: value if isinstance(value, list) else [value] * rows for name, value in columns.items()}
    return SamplingTable.of(SimpleNamespace(**lists), rows)


def draw(logits, parameters, positions=None, counts=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    at = torch.zeros(len(logits), dtype=torch.int64) if positions is None else torch.tensor(positions)
    return sample(logits, parameters, at, counts, generator)


def random_logits(rows, vocabulary=50, seed=1):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("greedy", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}])
def test_greedy_is_the_largest_logit(greedy):
    logits = random_logits(16)
    tokens, logprobs = draw(logits, table(16, **greedy))
    assert torch.equal(tokens, logits.argmax(-1))
    assert logprobs.eq(1).all()


def test_the_parameters_are_formatted_as_tt_metal_does():
    """T 0 is greedy, k outside 1..32 is 32, p is cut to [0, 1], a repetition penalty of 0 is none, scalars spread."""
    columns = {"temperature": [0.0, 1.0, 2.0, 1.0], "top_k": [9, 0, 33, 5], "top_p": [2.0, -1.0, 0.5, 1.0]}
    made = table(4, **columns, repetition_penalty=0.0)
    assert made.top_k.tolist() == [1, MAX_TOP_K, MAX_TOP_K, 5]
    assert made.temperature.tolist() == [1.0, 1.0, 2.0, 1.0]
    assert made.top_p.tolist() == [1.0, 0.0, 0.5, 1.0]
    assert not made.penalised
    scalars = SimpleNamespace(**NEUTRAL | {"seed": 3})
    assert SamplingTable.of(scalars, 2).seed.tolist() == [3, 3]


DISTRIBUTIONS = {
    "plain": {},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 2.0},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.7},
    "both": {"top_k": 6, "top_p": 0.8, "temperature": 1.3},
}


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_draws_follow_the_distribution(kind):
    """Chi-square over 20,000 draws; fails when top-k, top-p or the temperature is applied wrongly."""
    given_ = DISTRIBUTIONS[kind]
    logits = random_logits(1, vocabulary=12)
    rows = 20_000
    tokens, _ = draw(logits.expand(rows, -1), table(rows, **given_))
    expected = distribution(logits[0], **{"temperature": 1.0, "top_k": 32, "top_p": 1.0, **given_}) * rows
    seen = torch.bincount(tokens, minlength=12).double()
    assert seen[expected == 0].sum() == 0
    kept = expected > 0
    chi = ((seen - expected)[kept] ** 2 / expected[kept]).sum().item()
    freedom = int(kept.sum()) - 1
    assert chi < freedom + 5 * math.sqrt(2 * freedom)


def distribution(logits, temperature, top_k, top_p):
    """vLLM's order, written out: temperature, then top-k, then top-p over what is left."""
    probabilities = (logits.double() / temperature).softmax(-1)
    order = probabilities.argsort(descending=True)
    kept, total = {}, sum(float(probabilities[i]) for i in order[:top_k])
    mass = 0.0
    for i in order[:top_k]:
        if mass >= top_p and kept:
            break
        kept[int(i)] = float(probabilities[i]) / total
        mass += kept[int(i)]
    out = torch.zeros(len(logits), dtype=torch.float64)
    for i, value in kept.items():
        out[i] = value / sum(kept.values())
    return out


def test_a_seeded_row_does_not_depend_on_its_row_or_batch():
    """Fails when the stream is taken from a common generator, or hashed with the row."""
    logits = random_logits(1).expand(8, -1)
    alone, _ = draw(logits[:1], table(1, seed=1234), [77])
    for rows, row, others in [(8, 0, None), (8, 7, 5), (3, 1, 99)]:
        seeds = [others] * rows
        seeds[row] = 1234
        positions = list(range(rows))
        positions[row] = 77
        tokens, _ = draw(logits[:rows], table(rows, seed=seeds), positions, seed=row)
        assert tokens[row] == alone[0]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**20))
def test_a_stream_is_a_function_of_seed_and_position(seed, position):
    parameters, generator = table(2, seed=[seed, seed]), torch.Generator()
    first = uniforms(parameters, torch.tensor([position, position + 1]), generator)
    again = uniforms(parameters, torch.tensor([position, position + 1]), generator)
    assert torch.equal(first, again)
    assert first[0] != first[1]
    assert ((first >= 0) & (first < 1)).all()


def test_streams_of_one_seed_are_uniform_over_positions():
    draws = uniforms(table(20_000, seed=7), torch.arange(20_000), torch.Generator())
    seen = torch.histc(draws.float(), 20, 0, 1)
    assert ((seen - 1000) ** 2 / 1000).sum() < 19 + 5 * math.sqrt(38)


def test_unseeded_rows_differ_from_one_another_and_from_call_to_call():
    generator = torch.Generator().manual_seed(0)
    draws = [uniforms(table(4), torch.zeros(4, dtype=torch.int64), generator) for _ in range(2)]
    assert len(set(torch.cat(draws).tolist())) == 8


@pytest.mark.parametrize("seed", [2**40 + 1, -5, -(2**63), 2**64 - 1, 0])
def test_seeds_of_64_bits_are_kept_apart(seed):
    at = torch.tensor([9])
    one = uniforms(table(1, seed=[seed]), at, torch.Generator())
    other = uniforms(table(1, seed=[seed ^ (1 << 40)]), at, torch.Generator())
    assert one != other


def test_penalties_are_vllm_s():
    """Repetition over prompt and output, frequency by count, presence once; rows apart. -1 pads a history."""
    vocabulary = 20
    logits = random_logits(3, vocabulary)
    prompts = [[1, 2, 2], [3], []]
    outputs = [[5, 5, 6], [3, 4, 4], [0]]
    repetition, frequency, presence = [1.3, 1.0, 2.0], [0.4, -0.2, 0.0], [0.0, 0.7, 0.3]
    counts = TokenCounts.of(padded(prompts), padded(outputs), vocabulary)
    expected = logits.clone()
    for row in range(3):
        for token in range(vocabulary):
            seen = outputs[row].count(token)
            value = expected[row, token]
            if token in prompts[row] or seen:
                value = value / repetition[row] if value > 0 else value * repetition[row]
            expected[row, token] = value - frequency[row] * seen - presence[row] * (seen > 0)
    columns = table(3, repetition_penalty=repetition, frequency_penalty=frequency, presence_penalty=presence)
    assert torch.allclose(counts.penalise(logits, columns), expected, atol=1e-6)


def padded(histories):
    width = max(map(len, histories)) + 2
    return torch.tensor([row + [-1] * (width - len(row)) for row in histories], dtype=torch.int32)


def test_a_generated_token_counts_from_the_next_step_on():
    counts = TokenCounts.of(padded([[1]]), None, 4)
    counts.add(torch.tensor([0]), torch.tensor([2]))
    logits = torch.tensor([[0.0, 0.0, 1.0, 0.5]])
    tokens, _ = draw(logits, table(1, temperature=0.0, presence_penalty=0.6), counts=counts)
    assert tokens.tolist() == [3]


def test_logprobs_are_those_of_the_unmodified_logits_for_rows_that_asked():
    logits = random_logits(3)
    parameters = table(3, temperature=[0.0, 0.7, 0.0], enable_log_probs=[True, True, False], presence_penalty=0.1)
    tokens, logprobs = draw(logits, parameters, counts=TokenCounts.of(padded([[], [], []]), None, 50))
    expected = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    assert torch.allclose(logprobs[:2], expected[:2])
    assert logprobs[2] == 1.0
    assert logprobs.dtype == torch.float32
