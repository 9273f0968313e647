"""The model adapter against the shapes and signatures that real adapters have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tt_sampling.parameters import TTSamplingParams
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.inputs import DecodeInputs, PrefillInputs
from tt_worker.loading import LoadRequest, load
from tt_worker.methods import AdapterError, Method
from tt_worker.outcome import outcome_of, token_ids
from tt_worker.reload import ReloadPlan
from tt_worker.warmup import WarmupPlan, warm_up

V = 11
STEADY = ReloadPlan(False, False, False, False)
RESET = ReloadPlan(True, False, True, True)


class Calls:
    """Records what it is called with. Subclasses have the signatures recorded from tt-metal (contract 1.5, 1.6)."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def read_decode_output(self, payload: Any, async_read: bool = False) -> tuple[Any, list[Any]]:
        assert async_read
        return payload, ["event"]

    def process_decode_output_host(self, payload: Any, is_tokens: bool = False) -> Any:
        return payload["tokens"] if is_tokens else torch.zeros(2, 1, V)


class Open(Calls):
    def prefill_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.seen = kwargs
        return torch.tensor([[3]]), torch.ones(1)

    def decode_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.seen = kwargs
        return {"tokens": torch.tensor([4, 5])}


class Galaxy(Calls):
    """Closed decode signature; legacy protocol."""

    def prefill_forward(
        self, tokens, page_table=None, kv_cache=None, prompt_lens=None, enable_trace=True, sampling_params=None,
        start_pos=None, empty_slots=None,
    ):  # fmt: skip
        return torch.tensor([3], dtype=torch.int32)

    def decode_forward(
        self, tokens, start_pos, page_table=None, kv_cache=None, enable_trace=True, read_from_device=True,
        async_read=False, sampling_params=None, reset_inputs=False, reset_batch=False, prompt_tokens=None,
        output_tokens=None, slot_remap=None,
    ):  # fmt: skip
        self.seen = {k: v for k, v in locals().items() if k not in ("self",)}
        return {"tokens": torch.tensor([4, 5])}


class Resident(Calls):
    """Decode contract v1, closed."""

    decode_input_update_contract = 1

    def prefill_forward(
        self, *, tokens, page_table, kv_cache, enable_trace, prompt_lens, start_pos, sampling_params=None
    ):
        """No empty_slots: a model without state may not know the keyword."""
        return torch.zeros(1, 1, V)

    def decode_forward(
        self, *, tokens, start_pos, page_table, kv_cache, enable_trace, read_from_device, reload_inputs,
        reload_page_table, reload_sampling_params, reset_sampling_state, sampling_params=None,
    ):  # fmt: skip
        self.seen = {k: v for k, v in locals().items() if k.startswith("re")}
        return {"tokens": torch.tensor([4, 5])}


def adapter(model: Any, events: list[Any] | None = None) -> ModelAdapter:
    wait = (events if events is not None else []).append
    return ModelAdapter(model, rows=2, vocab_size=V, trace=TraceMode.of("all"), event_synchronize=wait)


def decode_inputs() -> DecodeInputs:
    return DecodeInputs(np.zeros((2, 1), np.int32), np.array([5, -1], np.int32), (np.zeros((2, 3), np.int32),))


def prefill_inputs() -> PrefillInputs:
    one = np.ones((1, 4), np.int32)
    return PrefillInputs(one, (np.zeros((1, 3), np.int32),), np.zeros(1, np.int32), np.array([4], np.int64), [1])


@pytest.mark.parametrize("model", [Open, Galaxy, Resident])
@pytest.mark.parametrize("on_device", [True, False])
def test_every_call_binds_to_every_recorded_signature(model: type, on_device: bool) -> None:
    sampling = object() if on_device else None
    built = adapter(model())
    built.prefill(prefill_inputs(), sampling)
    outcome = built.submit_decode(decode_inputs(), sampling, RESET)()
    assert (outcome.tokens is not None) == on_device


def test_the_two_decode_protocols_are_never_mixed() -> None:
    """A v1 model gets the four commands always; a legacy one `reset_batch` and only when the device samples."""
    model = Open()
    adapter(model).submit_decode(decode_inputs(), object(), RESET)
    assert model.seen["reset_batch"] is True
    assert not {k for k in model.seen if k.startswith("reload")}
    adapter(model).submit_decode(decode_inputs(), None, RESET)
    assert "reset_batch" not in model.seen
    resident = Resident()
    adapter(resident).submit_decode(decode_inputs(), None, STEADY)
    assert [resident.seen[k] for k in sorted(resident.seen) if k.startswith("reload")] == [False, False, False]


def test_the_read_back_waits_for_its_events_only_when_asked() -> None:
    events: list[Any] = []
    finish = adapter(Open(), events).submit_decode(decode_inputs(), object(), STEADY)
    assert events == []
    assert finish().tokens.tolist() == [4, 5]
    assert events == ["event"]


def test_a_required_keyword_that_a_model_does_not_take_names_class_method_and_clause() -> None:
    class Odd(Open):
        def decode_forward(self, tokens: Any, start_pos: Any) -> Any:
            return None

    with pytest.raises(AdapterError, match=r"Odd.decode_forward does not take page_table.*1\.6"):
        adapter(Odd()).submit_decode(decode_inputs(), None, STEADY)


def test_a_model_without_a_required_method_is_refused_when_it_is_built() -> None:
    with pytest.raises(AdapterError, match=r"Calls.prefill_forward is missing: tt-metal contract 1\.5"):
        adapter(Calls())


def test_a_payload_that_cannot_be_read_names_the_hook() -> None:
    class NoHooks(Open):
        process_decode_output_host = None  # type: ignore[assignment]

    with pytest.raises(AdapterError, match="process_decode_output_host"):
        adapter(NoHooks()).submit_decode(decode_inputs(), object(), STEADY)


HOST_RESULTS = {
    "text, prefill on the host": (torch.zeros(2, 1, V), "logits"),
    "DeepSeek, all positions": (torch.zeros(2, 4, V), "logits"),
    "lanes, two dimensions": (torch.zeros(2, V), "logits"),
    "pair with an unused second": ((torch.zeros(2, 1, V), torch.ones(2, 1, V)), "logits"),
    "text, prefill on the device": ((torch.tensor([[1], [2]]), torch.ones(2)), "tokens"),
    "no logprobs": ((torch.tensor([1, 2]), None), "tokens"),
    "Galaxy": (torch.tensor([1, 2], dtype=torch.int32), "tokens"),
    "NoOp": (torch.zeros(2, 1, 1, dtype=torch.int32), "tokens"),
}


@pytest.mark.parametrize("name", HOST_RESULTS)
def test_results_are_told_apart_by_their_shape(name: str) -> None:
    value, kind = HOST_RESULTS[name]
    outcome = outcome_of(value, rows=2, vocab_size=V, label="X.prefill_forward")
    assert (outcome.logits is not None) == (kind == "logits")
    assert (outcome.tokens is not None) == (kind == "tokens")
    if outcome.logits is not None:
        assert outcome.logits.shape == (2, V)


@pytest.mark.parametrize("value", [None, "x", torch.zeros(2), torch.tensor([1]), torch.zeros(1, 1, V)])
def test_a_result_that_is_neither_is_an_error_that_names_the_clause(value: Any) -> None:
    with pytest.raises(AdapterError, match=r"X.prefill_forward returned"):
        outcome_of(value, rows=2, vocab_size=V, label="X.prefill_forward")


def test_the_last_position_of_all_logits_counts() -> None:
    logits = torch.arange(2 * 3 * V, dtype=torch.float32).reshape(2, 3, V)
    assert torch.equal(outcome_of(logits, rows=2, vocab_size=V, label="X").logits, logits[:, -1])


def test_vllm_config_is_given_only_to_a_class_that_names_it() -> None:
    """Text classes have closed signatures (contract 1.2). Fails when the keyword is always sent."""

    class Text:
        @classmethod
        def initialize_vllm_model(
            cls,
            hf_config,
            mesh_device,
            max_batch_size,
            max_seq_len,
            n_layers=None,
            tt_data_parallel=1,
            optimizations=None,
        ):
            return ("text", max_batch_size, max_seq_len, tt_data_parallel)

    class Asks(Text):
        @classmethod
        def initialize_vllm_model(cls, hf_config, mesh, rows, *, vllm_config, **kwargs):
            return vllm_config

    request = LoadRequest("hf", 8, 128, 2, None, "engine")
    assert load(Text, "mesh", request) == ("text", 8, 128, 2)
    assert load(Asks, "mesh", request) == "engine"


def test_a_batch_that_the_loaded_model_does_not_know_is_refused_with_its_sizes() -> None:
    class Sized:
        tt_supported_decode_batch_sizes = (16, 8)

        @classmethod
        def initialize_vllm_model(cls, hf_config, mesh, rows, *, max_seq_len, tt_data_parallel, optimizations):
            return cls()

    assert load(Sized, "mesh", LoadRequest("config", 16, 128, 1, None, None))
    with pytest.raises(AdapterError, match=r"Sized.* are \[8, 16\] and the batch has 12 rows: choose --max-num-seqs"):
        load(Sized, "mesh", LoadRequest("config", 12, 128, 1, None, None))


def test_warm_up_compiles_both_then_captures_prefill_before_decode() -> None:
    """Captured the other way round, prefill's capture corrupts the decode trace (#122)."""
    order: list[Any] = []

    class Warm(Open):
        already_warmed_up_prefill = True

        def warmup_model_prefill(self, kv_cache, enable_trace, can_sample_on_device):
            order.append(("prefill", enable_trace, self.already_warmed_up_prefill))

        def warmup_model_decode(self, kv_cache, enable_trace, max_batch_size, num_blocks, can_sample_on_device):
            order.append(("decode", enable_trace, max_batch_size, num_blocks))

    warm_up(adapter(Warm()), WarmupPlan(sample_prefill=True, sample_decode=True, pages=3))
    assert order == [
        ("prefill", False, True),
        ("decode", False, 2, 3),
        ("prefill", True, False),
        ("decode", True, 2, 3),
    ]


def test_an_optional_keyword_is_left_out_where_it_is_not_known() -> None:
    class One:
        def call(self, a: int) -> int:
            return a

    assert Method(One(), "call", "0")({"a": 1}, {"b": 2}) == 1


def test_with_several_groups_each_layer_is_given_its_group_s_table_in_full_height() -> None:
    """Fails when a prefill's tables have as many lines as it has rows (contract 1.5)."""
    model = Open()
    driven = adapter(model)
    driven.layer_groups = (1, 0, 1)
    full, sliding = np.full((1, 3), 7, np.int32), np.full((1, 3), 9, np.int32)
    one = np.ones((1, 4), np.int32)
    driven.prefill(PrefillInputs(one, (full, sliding), np.zeros(1, np.int32), np.array([4], np.int64), [1]), None)
    assert model.seen["page_table"].tolist() == [[7, 7, 7]]
    assert [table.tolist() for table in model.seen["page_tables_per_layer"]] == [
        [[9, 9, 9], [0, 0, 0]],
        [[7, 7, 7], [0, 0, 0]],
        [[9, 9, 9], [0, 0, 0]],
    ]
    first, _, third = model.seen["page_tables_per_layer"]
    assert third is model.seen["page_tables_per_layer"][0]
    assert first.dtype == torch.int32


def test_one_group_sends_no_table_by_layer() -> None:
    model = Open()
    adapter(model).prefill(prefill_inputs(), None)
    assert "page_tables_per_layer" not in model.seen


@pytest.mark.parametrize("on_device", [True, False])
def test_rows_beyond_their_number_are_prefilled_one_by_one_on_a_legacy_class(on_device: bool) -> None:
    """A class of mid-2026 that computes rows together writes results by slot (contract 7). Fails when they go in one
    call."""
    seen: list[tuple[list[int], list[float] | None]] = []

    class June(Open):
        def prefill_forward(self, *, tokens: Any, empty_slots: Any, sampling_params: Any = None, **rest: Any) -> Any:
            if len(empty_slots) > 1 and max(empty_slots) >= len(empty_slots):
                raise IndexError("index 3 is out of bounds for dimension 0 with size 2")
            seen.append((tokens[0].tolist(), sampling_params and sampling_params.temperature))
            if sampling_params:
                return tokens[:, -1:].long(), torch.ones(len(tokens))
            return torch.full((len(tokens), 1, V), float(tokens[0, 0]))

    driven = ModelAdapter(June(), rows=4, vocab_size=V, trace=TraceMode.of("all"), event_synchronize=lambda event: None)
    tokens, ends = np.array([[1, 2, 3], [4, 5, 0]], np.int32), np.array([3, 2], np.int64)
    inputs = PrefillInputs(tokens, (np.zeros((2, 2), np.int32),), np.zeros(2, np.int32), ends, [0, 3])
    sampling = TTSamplingParams([0.0, 0.5], [1, 1], [1.0, 1.0], seed=[None, 7]) if on_device else None
    outcome = driven.prefill(inputs, sampling)
    assert seen == [([1, 2, 3], [0.0] if on_device else None), ([4, 5], [0.5] if on_device else None)]
    if on_device:
        assert token_ids(outcome.tokens) == [3, 5]
    else:
        assert outcome.logits[:, 0].tolist() == [1.0, 4.0]
