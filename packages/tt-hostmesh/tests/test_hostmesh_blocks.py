"""Block output: the tokens of plain greedy decoding, several at a time."""

import pytest
import torch

from tt_hostmesh.adapter.protocol import DecodeProtocol
from tt_hostmesh.blocks.generator import WIDTH, AdaptiveBlockLlamaForCausalLM, BlockLlamaForCausalLM
from tt_hostmesh.strict.breach import Limits

PROMPT = [7, 3, 99, 12, 45]


class Blocks:
    """A plugin in small for block output, over the driver of conftest: one request in each given row."""

    def __init__(self, run, tools):
        self.run, self.tools = run, tools

    def prefill(self, requests):
        """Append what comes out, with room for the block that the device writes."""
        for request in requests:
            self.run.grow(request, min(len(request.tokens) + WIDTH, self.run.width * self.tools.block))
        out = self.run.model.prefill_forward(
            **self.run.prefill_call(requests, sampling=self.tools.params(len(requests)))
        )
        tokens = out[0] if isinstance(out, tuple) else out
        for request, line in zip(requests, tokens.tolist(), strict=True):
            request.tokens += line
        self.run.forget()
        return tokens

    def decode(self, **changes):
        for request in self.run.live.values():
            self.run.grow(request, min(len(request.tokens) + WIDTH, self.run.width * self.tools.block))
        call = self.run.decode_call(self.tools.params(self.run.batch), **changes)
        out = self.run.model.decode_forward(**call)
        if not isinstance(out, torch.Tensor):
            host, events = self.run.model.read_decode_output(out, async_read=True)
            for event in events:
                event.wait()
            out = self.run.model.process_decode_output_host(host)
        self.run.accepted(call)
        lines = out.tolist() if len(out) == len(self.run.live) else [out[row].tolist() for row in self.run.live]
        for request, line in zip(self.run.live.values(), lines, strict=True):
            request.tokens += line
        return out


@pytest.fixture
def blocks(load, tools):
    def make(cls, **options):
        return Blocks(load(cls, **options), tools)

    return make


def test_blocks_are_the_tokens_of_greedy_decoding(blocks, reference):
    """A prefill answers with a whole block too. Fails when a block begins a position early or late."""
    plugin = blocks(BlockLlamaForCausalLM, batch=1)
    request = plugin.run.admit(PROMPT, 0)
    assert plugin.prefill([request]).shape == (1, WIDTH)
    assert plugin.decode().shape == (1, WIDTH)
    assert plugin.decode(read_from_device=False).shape == (1, WIDTH)
    assert request.tokens[5:] == reference(PROMPT, 3 * WIDTH)


def test_a_lone_row_gets_a_block_and_a_batch_a_token_each(blocks, reference):
    plugin = blocks(AdaptiveBlockLlamaForCausalLM)
    first = plugin.run.admit(PROMPT, 2)
    assert plugin.prefill([first]).shape == (1, 1)
    assert plugin.decode().shape == (1, WIDTH)
    second = plugin.run.admit(PROMPT[::-1], 0)
    plugin.prefill([second])
    plugin.run.live = {0: second, 2: first}
    assert plugin.decode().shape == (4, 1)
    plugin.decode()
    plugin.run.finish(second)
    plugin.run.model.release_request(0)
    assert plugin.decode().shape == (1, WIDTH)
    assert first.tokens[5:] == reference(PROMPT, 3 + 2 * WIDTH)
    assert second.tokens[5:] == reference(PROMPT[::-1], 3)


def test_a_long_prompt_stays_at_one_token(blocks, reference):
    """Also where it moved to."""
    plugin = blocks(AdaptiveBlockLlamaForCausalLM)
    prompt = (PROMPT * 50)[: AdaptiveBlockLlamaForCausalLM.LONGEST + 1]
    request = plugin.run.admit(prompt, 1)
    plugin.prefill([request])
    plugin.decode()
    plugin.run.model.note_state_slots_moved({1: 3})
    request.row = 3
    plugin.run.live = {3: request}
    plugin.run.forget()
    plugin.decode(slot_remap=torch.tensor([0, 3, 2, 1], dtype=torch.int32))
    assert request.tokens[len(prompt) :] == reference(prompt, 3)


def test_nothing_is_computed_beyond_the_longest_sequence(blocks, reference):
    """The columns of positions that do not exist are 0. Fails when the strict mode sees a position too far."""
    plugin = blocks(BlockLlamaForCausalLM, batch=1, max_len=32)
    prompt = list(range(20, 41))
    request = plugin.run.admit(prompt, 0)
    plugin.prefill([request])
    plugin.decode()
    assert request.tokens[21:33] == reference(prompt, 12)
    assert request.tokens[33:] == [0] * (2 * WIDTH - 12)


@pytest.mark.parametrize(("lookahead", "block_size", "tail"), [(0, 64, 1), (16, 64, 1), (16, 4, 4), (512, 64, 8)])
def test_a_row_may_have_blocks_for_what_is_written_ahead_of_a_step(load, lookahead, block_size, tail):
    """The engine reserves two blocks of tokens. Fails when all but one block of KV is a stale tail."""
    placement = load(BlockLlamaForCausalLM, batch=1).model._placement
    limits = Limits("Model", DecodeProtocol.V1, 160, placement, block_size=block_size, lookahead=lookahead)
    assert limits.tail == tail


def test_the_plain_form_serves_one_request(blocks):
    with pytest.raises(ValueError, match="serves one request"):
        blocks(BlockLlamaForCausalLM, batch=2)
