"""The synthetic model: tokens that can be checked, faults that show, time that is simulated."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tt_hostmesh.adapter.compute import KVLayout
from tt_hostmesh.peaks import Peaks
from tt_hostmesh.sampling import SamplingTable, TokenCounts, sample
from tt_hostmesh.spans import busy_share, read_spans
from tt_hostmesh.synthetic.cache import DigestCache
from tt_hostmesh.synthetic.checkpoint import configuration, main
from tt_hostmesh.synthetic.cost import DeviceCost
from tt_hostmesh.synthetic.digest import continuation, next_tokens
from tt_hostmesh.synthetic.generator import SyntheticForCausalLM

VOCABULARY = 1000
FREE = DeviceCost(decode_ms=0, prefill_ms_per_token=0)


def config_of(cost=FREE):
    return SimpleNamespace(**configuration(VOCABULARY, 256, cost))


def prompt(length, seed=0):
    return [(7 * i * i + 13 * seed + i) % VOCABULARY for i in range(length)]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("protocol", ["v1", "legacy"])
def test_greedy_tokens_are_a_function_of_the_prompt_alone(load, tools, monkeypatch, protocol, lanes):
    """Chunks, cached prefixes, other rows, host and device sampling change nothing."""
    monkeypatch.setenv("TT_HOST_PROTOCOL", protocol)
    driver = load(SyntheticForCausalLM, config=config_of(), lanes=lanes)
    first = driver.admit(prompt(70), 1)
    driver.prefill([first], ends=[33], final=False)
    driver.prefill([first], sampling=tools.params(1))
    second = driver.admit([*prompt(64), 5], 0, computed=0)
    driver.prefill([second], sampling=tools.params(1))
    third = driver.admit(prompt(20, 3), 3)
    driver.prefill([third])
    for step in range(20):
        driver.decode(tools.params(4) if step % 5 else None)
    for request, length in ((first, 70), (second, 65), (third, 20)):
        assert request.tokens[length:] == continuation(request.tokens[:length], 21, VOCABULARY)
    assert driver.model._device.compute._cache.faults == 0


class Context:
    """A context in blocks of 4 of one cache."""

    def __init__(self, cache, blocks, tokens):
        self.cache, self.blocks, self.tokens = cache, np.array(blocks), list(tokens)
        self.next = self.token(cache.extend(np.array(self.tokens), 0, self.blocks))

    @staticmethod
    def token(digest):
        return int(next_tokens(np.array([digest]), VOCABULARY)[0])

    def step(self, position=None):
        self.tokens.append(self.next)
        at = len(self.tokens) - 1 if position is None else position
        self.next = self.token(self.cache.append(np.array([self.next]), np.array([at]), self.blocks[None])[0])

    def exact(self):
        return self.next == continuation(self.tokens, 1, VOCABULARY)[0]


def swap(context):
    context.blocks[0] = 9


def hole(context):
    context.blocks[1] = 0


def overwritten_block(context):
    Context(context.cache, [int(context.blocks[0])], [3, 4])


def overwritten_last_block(context):
    Context(context.cache, [int(context.blocks[2])], [3])


def late(context):
    context.step(position=len(context.tokens) + 1)


def wrong_token(context):
    context.next += 1
    context.tokens[-1:] = [context.tokens[-1]]
    expected = context.next - 1
    context.step()
    context.tokens[-1] = expected


FAULTS = [swap, hole, overwritten_block, overwritten_last_block, late, wrong_token]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_page_table_or_the_position_shows_in_every_later_token(fault):
    """Fails when a read looks at one block only."""
    context = Context(DigestCache(KVLayout(1, 16, 4)), [1, 2, 3, 4, 5], prompt(10))
    context.step()
    assert context.exact()
    fault(context)
    for _ in range(6):
        context.step()
        assert not context.exact()


def test_a_shared_prefix_and_a_chunk_computed_again_are_no_faults():
    cache = DigestCache(KVLayout(1, 16, 4))
    first = Context(cache, [1, 2, 3], prompt(11))
    tokens = np.array([*prompt(8), 1, 2])
    digest = cache.extend(tokens, 6, np.array([1, 2, 7]))
    assert Context.token(digest) == continuation(tokens.tolist(), 1, VOCABULARY)[0]
    first.step()
    assert first.exact()
    assert cache.faults == 0


@given(
    st.integers(0, 2**32),
    st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.6}, {"temperature": 0.0}]),
    st.booleans(),
)
def test_sampling_the_candidates_is_sampling_all_logits(seed, columns, penalised):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(200, generator=generator)[:32] for _ in range(3)])
    peaks = Peaks(ids, torch.arange(10.0, -6.0, -0.5).expand(3, -1), -100.0, 200)
    neutral = {"temperature": 1.0, "top_k": 32, "top_p": 1.0, "seed": [5, 6, 7], "enable_log_probs": True}
    penalties = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
    if penalised:
        penalties = {"presence_penalty": 1.0, "frequency_penalty": -0.7, "repetition_penalty": 1.3}
    table = SamplingTable.of(SimpleNamespace(**{**neutral, **penalties, **columns}), 3)
    history = torch.randint(0, 200, (3, 40), generator=generator)
    counts = TokenCounts.of(history, history[:, :9], 200)
    rows, positions = torch.arange(3), torch.tensor([1, 2, 3])
    short = peaks.sample(table, positions, counts.at(rows, ids), generator)
    full = sample(peaks.dense(), table, positions, counts, generator)
    assert torch.equal(short[0], full[0])
    assert torch.allclose(short[1], full[1], atol=1e-5)


def test_a_step_takes_its_cost_from_when_the_device_was_free(load, tools):
    """Two steps submitted at once end one after the other; waiting for them costs no CPU."""
    driver = load(SyntheticForCausalLM, config=config_of(DeviceCost(decode_ms=80, prefill_ms_per_token=2)))
    driver.warm_up()
    request = driver.admit(prompt(20), 0)
    began = time.monotonic()
    driver.prefill([request], sampling=tools.params(1))
    assert 0.040 <= time.monotonic() - began < 0.080
    driver.mesh.finish()
    payloads, cpu, began = [], time.process_time(), time.monotonic()
    for _ in range(2):
        call = driver.decode_call(tools.params(4), read_from_device=False)
        payload = driver.model.decode_forward(**call)
        payloads.append(driver.model.read_decode_output(payload, async_read=True))
        driver.accepted(call)
    assert time.monotonic() - began < 0.050
    for number, (host, events) in enumerate(payloads, 1):
        assert not events[0].done()
        driver.runtime.event_synchronize(events[0])
        assert 0.080 * number <= time.monotonic() - began < 0.080 * number + 0.040
        driver.model.process_decode_output_host(host)
    assert time.process_time() - cpu < 0.080


COST = DeviceCost(10, 0.2, 0.16, 20, 0.25)


def test_the_cost_grows_with_users_context_and_tokens():
    assert COST.decode_seconds(1, 0) == pytest.approx(0.010)
    assert COST.decode_seconds(11, 5000) == pytest.approx(0.010 + 0.002 + 0.0008)
    assert COST.prefill_seconds(100) == pytest.approx(0.020 + 0.025)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"decode": 1}, "unknown key 'decode': allowed are decode_ms, "),
        ({"decode_ms": -1}, r"tt_synthetic\.decode_ms=-1 is not a time"),
        ({"decode_ms": "1"}, r"tt_synthetic\.decode_ms='1' is not a time"),
    ],
)
def test_a_wrong_cost_is_named(values, text):
    with pytest.raises(ValueError, match=text):
        DeviceCost.of(values)


def test_the_mesh_writes_what_ran_when(load, tools, monkeypatch, tmp_path):
    monkeypatch.setenv("TT_HOST_TIMELINE", str(tmp_path / "spans"))
    driver = load(SyntheticForCausalLM, config=config_of(DeviceCost(decode_ms=5, prefill_ms_per_token=1)))
    driver.model.already_warmed_up_prefill = True
    request = driver.admit(prompt(8), 0)
    driver.prefill([request], sampling=tools.params(1))
    driver.decode(tools.params(4))
    driver.runtime.close_mesh_device(driver.mesh)
    spans = [span for span in read_spans(tmp_path / "spans") if span.seconds]
    assert [(span.label, round(span.seconds, 6)) for span in spans] == [("prefill", 0.008), ("decode", 0.005)]
    assert busy_share(spans, spans[0].start, spans[0].start + 0.004) == pytest.approx(1)
    assert busy_share(spans, spans[0].start - 0.008, spans[0].end) == pytest.approx(0.5)


@pytest.mark.slow
def test_the_command_writes_a_checkpoint(tmp_path, capsys):
    assert main([str(tmp_path / "made"), "--vocab-size", "64", "--decode-ms", "3"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "made")
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config["vocab_size"] == 64
    assert DeviceCost.of(config["tt_synthetic"]).decode_ms == 3
    transformers = pytest.importorskip("transformers")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "made")
    assert words.encode("w5 w63") == [5, 63]


def test_a_vocabulary_too_small_for_the_candidates_is_named(load):
    with pytest.raises(ValueError, match="vocab_size=31 is too small"):
        load(SyntheticForCausalLM, config=SimpleNamespace(**configuration(31, 256, FREE)))
