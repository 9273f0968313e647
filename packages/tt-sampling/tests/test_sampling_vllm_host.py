"""The host sampler as the worker uses it, on both of its routes: ours and vLLM's own (always_compat_sampling)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

pytestmark = pytest.mark.vllm

VOCAB = 128
both = pytest.mark.parametrize("compat", [False, True], ids=["fast", "reference"])


@pytest.fixture
def make(host_sampling: Callable[..., Any]) -> Callable[..., Any]:
    """make(compat): a HostSampling of 6 rows."""
    return lambda compat: host_sampling(VOCAB, compat)


def logits_of(rows: int, seed: int = 0) -> "torch.Tensor":
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def words_for(*allowed: int) -> "numpy.ndarray":
    words = numpy.zeros((1, VOCAB // 32), dtype=numpy.uint32)
    for token in allowed:
        words[0, token // 32] |= numpy.uint32(1 << (token % 32))
    return words.view(numpy.int32)


@both
def test_a_structured_row_without_a_mask_fails_alone_with_an_error_that_names_its_request(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool
) -> None:
    """An unmatched row was once sampled unconstrained, silently."""
    sampler = make(compat)
    structured = vllm_kit.StructuredOutputsParams(regex="a+")
    sampler.admit(0, vllm_kit.SamplingParams(temperature=0.0), [1], [])
    sampler.admit(2, vllm_kit.SamplingParams(temperature=0.0, structured_outputs=structured), [1], [], request_id="r-7")
    sample = sampler.sample(logits_of(2), [0, 2], advance=None, grammar=(words_for(3), {0: 0}))
    assert sample.token_ids[0] == 3
    assert list(sample.failed) == [1]
    assert "request 'r-7' (row 2)" in sample.failed[1]
    assert sampler.sample(logits_of(2), [0, 2], advance=[True, False], grammar=None).failed == {}
    masked = sampler.sample(logits_of(2), [0, 2], grammar=(words_for(3), {2: 0}))
    assert (masked.token_ids[1], masked.failed) == (3, {})


@both
def test_a_mask_touches_its_row_alone(make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool) -> None:
    sampler = make(compat)
    for row in range(3):
        sampler.admit(row, vllm_kit.SamplingParams(temperature=0.0), [1], [])
    logits = logits_of(3)
    logits[:, 77] = 50.0
    words = numpy.concatenate([words_for(5), words_for(9, 127)])
    logits[2, 127] = 40.0
    found = sampler.sample(logits, [2, 0, 1], grammar=vllm_kit.Grammar(words, {1: 1, 5: 0})).token_ids
    assert found == [77, 77, 127]


@both
def test_seeds_decide_and_rows_do_not(make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool) -> None:
    """The same seed in every row gives one token, and the reference route keeps the contract too."""
    sampler = make(compat)
    for row in range(6):
        sampler.admit(row, vllm_kit.SamplingParams(temperature=1.5, seed=2**40 + 1), [1], [])
    line = logits_of(1)
    assert len(set(sampler.sample(line.repeat(6, 1), [3, 1, 0, 5, 2, 4]).token_ids)) == 1
    assert len(set(sampler.sample(line, [4]).token_ids + sampler.sample(line.repeat(2, 1), [0, 1]).token_ids)) == 1


@both
def test_unseeded_requests_differ(make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool) -> None:
    sampler = make(compat)
    outputs: list[list[int]] = [[] for _ in range(6)]
    for row, output in enumerate(outputs):
        sampler.admit(row, vllm_kit.SamplingParams(temperature=1.5), [1], output)
    for step in range(4):
        tokens = sampler.sample(logits_of(1, step).repeat(6, 1), list(range(6))).token_ids
        for output, token in zip(outputs, tokens, strict=True):
            output.append(token)
    assert len({tuple(output) for output in outputs}) > 3


@both
def test_a_resumed_request_continues_as_if_it_had_not_been_preempted(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool
) -> None:
    params = vllm_kit.SamplingParams(temperature=0.9, seed=11, frequency_penalty=0.9, repetition_penalty=1.3)

    def run(preempted_after: int | None) -> list[int]:
        sampler = make(compat)
        output: list[int] = []
        row = 1
        sampler.admit(row, params, [4, 5], output)
        for step in range(8):
            output.append(sampler.sample(logits_of(1, step), [row]).token_ids[0])
            if step == preempted_after:
                sampler.release(row)
                row, output = 4, list(output)
                sampler.admit(row, params, [4, 5], output)
        return output

    assert run(3) == run(None)


@both
def test_logprobs_come_for_the_rows_of_the_call_first_token_included(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool
) -> None:
    """logprobs=0 asks for the sampled token's; chosen ids come in the order asked."""
    sampler = make(compat)
    sampler.admit(0, vllm_kit.SamplingParams(temperature=0.0, logprobs=0), [1], [])
    sampler.admit(1, vllm_kit.SamplingParams(temperature=0.0), [1], [])
    sampler.admit(2, vllm_kit.SamplingParams(temperature=0.0, logprobs=3), [1], [])
    logits = logits_of(3)
    expected = logits.log_softmax(-1)
    sample = sampler.sample(logits, [2, 0, 1])
    top = expected[0].topk(3)
    part = sample.logprobs.slice_request(0, 1)
    assert part.logprob_token_ids.tolist() == [[sample.token_ids[0], *top.indices.tolist()]]
    assert part.logprobs[0].tolist() == pytest.approx([float(top.values[0]), *top.values.tolist()], abs=1e-5)
    assert part.sampled_token_ranks.tolist() == [1]
    part = sample.logprobs.slice_request(1, 1)
    assert part.logprobs[0, 0] == pytest.approx(float(expected[1].max()), abs=1e-5)
    assert sampler.sample(logits_of(1), [1]).logprobs is None
    assert sampler.sample(logits_of(1), [0]).logprobs.logprobs.shape == (1, 1)


@both
def test_logprobs_of_chosen_tokens(make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool) -> None:
    sampler = make(compat)
    params = vllm_kit.SamplingParams(temperature=0.0)
    params.logprob_token_ids = [9, 3, 100]
    sampler.admit(0, params, [1], [])
    logits = logits_of(1)
    expected = logits.log_softmax(-1)[0]
    sample = sampler.sample(logits, [0])
    ids = [sample.token_ids[0], 9, 3, 100]
    assert sample.logprobs.logprob_token_ids[0].tolist() == ids
    assert sample.logprobs.logprobs[0].tolist() == pytest.approx(expected[ids].tolist(), abs=1e-5)


@both
def test_wider_logits_and_other_dtypes_are_cut_and_converted(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool
) -> None:
    sampler = make(compat)
    sampler.admit(0, vllm_kit.SamplingParams(temperature=0.0), [1], [])
    logits = torch.zeros(1, VOCAB + 32, dtype=torch.bfloat16)
    logits[0, 5], logits[0, VOCAB + 1] = 1.0, 9.0
    assert sampler.sample(logits, [0]).token_ids == [5]


@both
def test_min_tokens_forbids_stop_tokens_until_enough_are_out(
    make: Callable[..., Any], vllm_kit: SimpleNamespace, compat: bool
) -> None:
    sampler = make(compat)
    output: list[int] = []
    sampler.admit(
        0, vllm_kit.SamplingParams(temperature=0.0, min_tokens=2, stop_token_ids=[8], max_tokens=9), [1], output
    )
    logits = torch.zeros(1, VOCAB)
    logits[0, 8], logits[0, 3] = 5.0, 4.0
    for _ in range(3):
        output.append(sampler.sample(logits.clone(), [0]).token_ids[0])
    assert output == [3, 3, 8]


def test_min_tokens_never_leaves_a_structured_row_without_a_token(
    make: Callable[..., Any], vllm_kit: SimpleNamespace
) -> None:
    """When the grammar allows the stop token alone, it is taken (vLLM from 0.29 on)."""
    sampler = make(False)
    structured = vllm_kit.StructuredOutputsParams(regex="a+")
    params = vllm_kit.SamplingParams(
        temperature=0.0, min_tokens=5, stop_token_ids=[8], max_tokens=9, structured_outputs=structured
    )
    sampler.admit(0, params, [1], [])
    assert sampler.sample(logits_of(1), [0], grammar=(words_for(8), {0: 0})).token_ids == [8]
    assert sampler.sample(logits_of(1), [0], grammar=(words_for(8, 60), {0: 0})).token_ids == [60]


def test_the_reference_is_vllms_sampler(make: Callable[..., Any], vllm_kit: SimpleNamespace) -> None:
    """Its rows against one direct call of vLLM's `Sampler`."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    sampler = make(True)
    prompts, outputs = [[3, 3, 9], [4]], [[7, 7, 8], [100]]
    for row, prompt, output in zip((5, 1), prompts, outputs, strict=True):
        params = vllm_kit.SamplingParams(
            temperature=0.0, frequency_penalty=0.5, presence_penalty=-1.0, repetition_penalty=1.4, logprobs=4
        )
        sampler.admit(row, params, prompt, output)
    logits = logits_of(2)
    direct = Sampler()(
        logits.clone(),
        SamplingMetadata(
            temperature=None,
            all_greedy=True,
            all_random=False,
            top_p=None,
            top_k=None,
            generators={},
            max_num_logprobs=4,
            no_penalties=False,
            prompt_token_ids=torch.tensor([[3, 3, 9], [4, VOCAB, VOCAB]]),
            frequency_penalties=torch.tensor([0.5, 0.5]),
            presence_penalties=torch.tensor([-1.0, -1.0]),
            repetition_penalties=torch.tensor([1.4, 1.4]),
            output_token_ids=outputs,
            allowed_token_ids_mask=None,
            bad_words_token_ids={},
            logitsprocs=LogitsProcessors(),
        ),
    )
    sample = sampler.sample(logits, [5, 1])
    assert sample.token_ids == direct.sampled_token_ids.flatten().tolist()
    assert sample.logprobs.logprob_token_ids.tolist() == direct.logprobs_tensors.logprob_token_ids.tolist()
    assert sample.logprobs.sampled_token_ranks.tolist() == direct.logprobs_tensors.selected_token_ranks.tolist()
