"""Where a step is sampled: each line of the decision table in docs/sampling.md is a case here."""

import pytest

from tt_sampling.parameters import RowSampling
from tt_sampling.placement import (
    ON_DEVICE,
    DeviceSampler,
    Mode,
    Phase,
    PlacementTable,
    place,
    row_reasons,
    step_reasons,
)
from tt_sampling.reasons import Reason, ReasonTally

ALL = DeviceSampler(mode=Mode.ALL)
GPT_OSS = DeviceSampler(mode=Mode.ALL, devices_per_lane=32, top_logprobs=True)
DRAW = RowSampling(temperature=0.7, top_k=20)


@pytest.mark.parametrize(
    ("row", "sampler", "reason"),
    [
        (RowSampling(temperature=0.0), ALL, None),
        (RowSampling(temperature=0.7), ALL, None),
        (RowSampling(temperature=0.7, top_k=5, top_p=0.9, seed=1), ALL, None),
        (RowSampling(presence_penalty=0.1), ALL, None),
        (RowSampling(presence_penalty=0.1), DeviceSampler(Mode.ALL, supports_penalties=False), Reason.PENALTIES),
        (RowSampling(frequency_penalty=0.1), DeviceSampler(Mode.ALL, supports_penalties=False), Reason.PENALTIES),
        (RowSampling(repetition_penalty=1.1), DeviceSampler(Mode.ALL, supports_penalties=False), Reason.PENALTIES),
        (RowSampling(min_p=0.1), ALL, Reason.MIN_P),
        (RowSampling(temperature=0.0, min_p=0.1), ALL, None),
        (RowSampling(logit_bias=((3, 1.0),)), ALL, Reason.LOGIT_BIAS),
        (RowSampling(min_tokens=3, stop_token_ids=frozenset({2})), ALL, Reason.MIN_TOKENS),
        (RowSampling(min_tokens=3), ALL, None),
        (RowSampling(allowed_token_ids=(1, 2)), ALL, Reason.ALLOWED_TOKEN_IDS),
        (RowSampling(bad_words=((1, 2),)), ALL, Reason.BAD_WORDS),
        (RowSampling(logits_processors=True), ALL, Reason.LOGITS_PROCESSOR),
        (RowSampling(thinking_budget=True), ALL, Reason.THINKING_BUDGET),
        (RowSampling(logprob_token_ids=(4,)), ALL, Reason.LOGPROB_TOKEN_IDS),
        (RowSampling(structured=True), ALL, Reason.STRUCTURED_OUTPUT),
        (RowSampling(structured=True), DeviceSampler(Mode.ALL, supports_grammar=True), None),
        (
            RowSampling(structured=True, logprobs=0),
            DeviceSampler(Mode.ALL, supports_grammar=True, devices_per_lane=8),
            Reason.STRUCTURED_OUTPUT,
        ),
        (RowSampling(logprobs=0), ALL, Reason.LOGPROBS),
        (RowSampling(logprobs=0), DeviceSampler(Mode.ALL, devices_per_lane=4), Reason.LOGPROBS),
        (RowSampling(logprobs=0), DeviceSampler(Mode.ALL, devices_per_lane=8), None),
        (RowSampling(logprobs=0), DeviceSampler(Mode.ALL, devices_per_lane=32), None),
        (RowSampling(logprobs=1), DeviceSampler(Mode.ALL, devices_per_lane=32), Reason.TOP_LOGPROBS),
        (RowSampling(logprobs=20), GPT_OSS, None),
        (
            RowSampling(logprobs=-1),
            DeviceSampler(Mode.ALL, devices_per_lane=32, top_logprobs=True),
            Reason.TOP_LOGPROBS,
        ),
        (RowSampling(logprobs=1), DeviceSampler(Mode.ALL, top_logprobs=True), Reason.LOGPROBS),
        (RowSampling(top_k=33), DeviceSampler(Mode.ALL, max_top_k=32), Reason.TOP_K),
        (RowSampling(top_k=32), DeviceSampler(Mode.ALL, max_top_k=32), None),
        (RowSampling(top_k=0), DeviceSampler(Mode.ALL, max_top_k=32), Reason.TOP_K),
        (RowSampling(temperature=0.0, top_k=0), DeviceSampler(Mode.ALL, max_top_k=32), None),
        (RowSampling(top_k=2), DeviceSampler(Mode.ALL, max_top_k=1), Reason.TOP_K),
        (RowSampling(seed=1), DeviceSampler(Mode.ALL, seeded_on_host=True), Reason.SEED),
        (RowSampling(seed=1, temperature=0.0), DeviceSampler(Mode.ALL, seeded_on_host=True), None),
        (RowSampling(), DeviceSampler(Mode.ALL, seeded_on_host=True), None),
    ],
)
def test_row_reasons(row: RowSampling, sampler: DeviceSampler, reason: Reason | None) -> None:
    assert row_reasons(row, sampler) == (frozenset() if reason is None else {reason})


@pytest.mark.parametrize(
    ("sampler", "phase", "open_chunk", "reason"),
    [
        (ALL, Phase.PREFILL, False, None),
        (ALL, Phase.DECODE, False, None),
        (ALL, Phase.PREFILL, True, Reason.CHUNK_NOT_FINAL),
        (DeviceSampler(Mode.DECODE_ONLY), Phase.DECODE, False, None),
        (DeviceSampler(Mode.DECODE_ONLY), Phase.PREFILL, False, Reason.PREFILL_IN_DECODE_ONLY),
        (DeviceSampler(Mode.OFF), Phase.DECODE, False, Reason.MODE_OFF),
        (DeviceSampler(Mode.ALL, always_compat=True), Phase.DECODE, False, Reason.ALWAYS_COMPAT),
    ],
)
def test_step_reasons(sampler: DeviceSampler, phase: Phase, open_chunk: bool, reason: Reason | None) -> None:
    assert step_reasons(sampler, phase, open_chunk) == (frozenset() if reason is None else {reason})


def test_one_row_with_a_reason_moves_the_whole_step() -> None:
    table = PlacementTable(ALL)
    for row in range(4):
        table.set(row, DRAW)
    assert table.place(Phase.DECODE) is ON_DEVICE
    table.set(2, RowSampling(min_p=0.2, logit_bias=((1, 1.0),)))
    placement = table.place(Phase.DECODE)
    assert not placement.device
    assert dict(placement.rows) == {2: {Reason.MIN_P, Reason.LOGIT_BIAS}}
    assert placement.reasons == {Reason.MIN_P, Reason.LOGIT_BIAS}
    table.clear(2)
    assert table.place(Phase.DECODE) is ON_DEVICE


def test_a_steady_step_gives_the_same_placement() -> None:
    """Fails when the table works a steady host step out anew."""
    table = PlacementTable(ALL)
    table.set(0, RowSampling(min_p=0.2))
    table.set(1, DRAW)
    placement = table.place(Phase.DECODE, [0, 1])
    assert table.place(Phase.DECODE, [0, 1]) is placement
    table.set(1, RowSampling(bad_words=((1,),)))
    assert table.place(Phase.DECODE, [0, 1]).reasons == {Reason.MIN_P, Reason.BAD_WORDS}


def test_only_rows_of_the_step_count() -> None:
    table = PlacementTable(ALL)
    table.set(0, RowSampling(min_p=0.2))
    table.set(1, DRAW)
    assert table.place(Phase.PREFILL, [1]) is ON_DEVICE
    assert not table.place(Phase.PREFILL, [1, 0]).device


def test_min_tokens_stops_being_a_reason_when_enough_tokens_are_out() -> None:
    table = PlacementTable(ALL)
    output: list[int] = []
    table.set(0, RowSampling(min_tokens=2, stop_token_ids=frozenset({7})), output)
    assert table.place(Phase.DECODE).reasons == {Reason.MIN_TOKENS}
    output += [1, 2]
    assert table.place(Phase.DECODE) is ON_DEVICE


def test_min_tokens_ending_leaves_the_other_reasons() -> None:
    table = PlacementTable(ALL)
    output = [1, 2]
    table.set(0, RowSampling(min_tokens=2, stop_token_ids=frozenset({7}), min_p=0.1), output)
    assert table.place(Phase.DECODE).reasons == {Reason.MIN_P}


def test_a_device_grammar_works_in_decode_steps_only() -> None:
    table = PlacementTable(DeviceSampler(Mode.ALL, supports_grammar=True))
    table.set(0, RowSampling(temperature=0.0, structured=True))
    assert table.place(Phase.DECODE) is ON_DEVICE
    assert table.place(Phase.PREFILL, [0]).reasons == {Reason.STRUCTURED_OUTPUT}


def test_a_reused_row_forgets_its_former_reasons() -> None:
    table = PlacementTable(ALL)
    table.set(0, RowSampling(min_p=0.2))
    table.set(0, DRAW)
    assert table.place(Phase.DECODE) is ON_DEVICE


def test_the_pure_function_needs_no_table() -> None:
    placement = place(ALL, Phase.DECODE, {3: frozenset({Reason.LOGPROBS}), 4: frozenset()})
    assert (placement.device, dict(placement.rows)) == (False, {3: {Reason.LOGPROBS}})


@pytest.mark.parametrize("option", ["none", "decode", "ALL", True])
def test_a_wrong_mode_names_the_option_and_what_is_allowed(option: object) -> None:
    with pytest.raises(ValueError, match=r'sample_on_device_mode is .*: allowed are "all" and "decode_only"'):
        Mode.of(option)  # type: ignore[arg-type]


def test_modes() -> None:
    assert [Mode.of(option) for option in (None, "all", "decode_only")] == [Mode.OFF, Mode.ALL, Mode.DECODE_ONLY]


def test_reasons_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tally = ReasonTally()
    placement = place(ALL, Phase.DECODE, {0: frozenset({Reason.MIN_P}), 1: frozenset({Reason.MIN_P})})
    with caplog.at_level("INFO", logger="vllm.tt.sampling"):
        tally.count(placement.reasons)
        tally.count(placement.reasons)
        tally.count(ON_DEVICE.reasons)
    assert tally.steps == {Reason.MIN_P: 2}
    assert (tally.host_steps, tally.device_steps) == (2, 1)
    assert [record.getMessage() for record in caplog.records] == ["Sampling on the host because of: min_p"]
