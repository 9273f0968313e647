"""The latency target in the adapters: chunks, order of admission, step times, log lines."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

import pytest

from tt_scheduler import Phase, Step

pytestmark = pytest.mark.vllm


@pytest.fixture
def make(scripted: ModuleType) -> Any:
    from tt_scheduler.vllm.scheduler import TTScheduler

    def build(target: float | None = 100.0, taught: bool = True, **config: Any) -> Any:
        options = {} if target is None else {"decode_interleave_target_itl_ms": target}
        config.setdefault("max_num_batched_tokens", 2048)
        settings = scripted.make_config(tt=options, max_model_len=2048, max_num_seqs=8, **config)
        engine = scripted.ScriptedEngine(scripted.make_scheduler(TTScheduler, settings), False)
        if taught:
            teach(engine)
        return engine

    return build


def teach(engine: Any) -> None:
    """A device of 20 ms + 0.25 ms a token for prefill, 20 ms for decode."""
    # A clock that stands still measures nothing, so the estimate stays as taught.
    engine.scheduler._pacing.now = lambda: 0.0
    policy = engine.scheduler._pacing.policy
    for tokens in (64, 256, 512, 1024):
        policy.observe(Step(Phase.PREFILL, tokens), 20 + 0.25 * tokens)
    policy.observe(Step(Phase.DECODE, 1), 20.0)


def test_T1_a_chunk_is_as_long_as_the_target_leaves_room_for(make: Any, scripted: ModuleType) -> None:
    engine = make(100.0)
    engine.add(scripted.make_request("a", [5] * 20, 30))
    engine.step()
    engine.add(scripted.make_request("b", [6] * 1500, 5))
    assert engine.step() == "prefill"
    scheduled = engine.worker.steps[-1].scheduled
    # 98 ms - 20 ms decode - 20 ms floor are 232 tokens, 224 in whole blocks of 16.
    assert scheduled == {"b": 224}
    assert engine.step() == "decode"


def test_T4_a_lone_prompt_is_not_cut(make: Any, scripted: ModuleType) -> None:
    engine = make(100.0)
    engine.add(scripted.make_request("a", [5] * 1500, 5))
    engine.step()
    assert engine.worker.steps[-1].scheduled == {"a": 1500}


def test_T5_whole_prompts_are_admitted_one_a_step(make: Any, scripted: ModuleType) -> None:
    engine = make(100.0, chunked=False)
    engine.add(scripted.make_request("a", [5] * 20, 30))
    engine.step()
    engine.add(*(scripted.make_request(name, [6] * 300, 5) for name in "bc"))
    engine.step()
    assert engine.worker.steps[-1].scheduled == {"b": 300}


def test_A1_the_shortest_waiting_prompt_goes_first(make: Any, scripted: ModuleType) -> None:
    import time

    engine = make(100.0)
    engine.add(scripted.make_request("a", [5] * 20, 60))
    engine.step()
    now = time.time()
    engine.add(
        scripted.make_request("long", [6] * 1000, 5, arrival=now),
        scripted.make_request("short", [7] * 100, 5, arrival=now),
    )
    engine.step()
    assert engine.worker.steps[-1].scheduled == {"short": 100, "long": 124}


def test_A1_a_prompt_that_waited_past_patience_is_not_overtaken(make: Any, scripted: ModuleType) -> None:
    import time

    engine = make(100.0)
    engine.add(scripted.make_request("a", [5] * 20, 60))
    engine.step()
    now = time.time()
    engine.add(
        scripted.make_request("long", [6] * 1000, 5, arrival=now - 5),
        scripted.make_request("short", [7] * 100, 5, arrival=now),
    )
    engine.step()
    assert engine.worker.steps[-1].scheduled == {"long": 224}


def test_A1_a_priority_queue_keeps_its_order(make: Any, scripted: ModuleType) -> None:
    engine = make(100.0, policy="priority")
    engine.add(scripted.make_request("a", [5] * 20, 60))
    engine.step()
    engine.add(
        scripted.make_request("long", [6] * 1000, 5, priority=0),
        scripted.make_request("short", [7] * 100, 5, priority=1),
    )
    engine.step()
    assert engine.worker.steps[-1].scheduled == {"long": 224}


def test_without_a_target_nothing_is_cut_or_reordered(make: Any, scripted: ModuleType) -> None:
    engine = make(None)
    engine.add(scripted.make_request("a", [5] * 20, 30))
    engine.step()
    engine.add(scripted.make_request("long", [6] * 1000, 5), scripted.make_request("short", [7] * 100, 5))
    engine.step()
    assert engine.worker.steps[-1].scheduled == {"long": 1000, "short": 100}


def test_steps_are_measured_between_schedule_and_result(make: Any, scripted: ModuleType) -> None:
    engine = make(100.0, taught=False)
    pacing = engine.scheduler._pacing
    now = 50.0
    pacing.now = lambda: now
    engine.add(scripted.make_request("a", [5] * 100, 3))
    for seconds in (0.045, 0.030):
        output = engine.scheduler.schedule(False)
        now += seconds
        engine.scheduler.update_from_output(output, engine.worker.execute(output))
    times = pacing.policy.target.times
    assert times.prefill_ms(100) == pytest.approx(45)
    assert times.decode_ms == pytest.approx(30)


def test_what_the_target_means_is_said_once(make: Any, scripted: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    engine = make(100.0)
    for tokens in range(100, 2100, 100):
        engine.scheduler._pacing.policy.observe(Step(Phase.PREFILL, tokens), 20 + 0.25 * tokens)
    engine.add(scripted.make_request("a", [5] * 100, 9))
    with caplog.at_level(logging.INFO, "vllm.tt.scheduler"):
        engine.run()
    lines = [r.getMessage() for r in caplog.records if "prompts get" in r.getMessage()]
    assert len(lines) == 1
    assert "decode takes 20.0 ms, prefill 20.0 ms + 0.250 ms a token" in lines[0]


def test_a_target_that_cannot_be_held_is_said_once(
    make: Any, scripted: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make(30.0)
    engine.add(scripted.make_request("a", [5] * 100, 9))
    with caplog.at_level(logging.WARNING, "vllm.tt.scheduler"):
        engine.run()
    lines = [r.getMessage() for r in caplog.records if "cannot be held" in r.getMessage()]
    assert len(lines) == 1
    assert "decode_interleave_target_itl_ms=30" in lines[0]


@pytest.mark.parametrize(
    ("options", "chunked", "expected"),
    [
        ({}, True, "Decode interleave enabled: at most 2 prefill step"),
        ({"decode_interleave_enabled": False}, True, "Decode interleave disabled"),
        ({"decode_interleave_target_itl_ms": 150}, True, "aims at an inter-token latency of 150 ms"),
        ({"decode_interleave_target_itl_ms": 150}, False, "prompts are not split"),
    ],
)
def test_the_launch_says_what_was_chosen(
    scripted: ModuleType, caplog: pytest.LogCaptureFixture, options: dict[str, Any], chunked: bool, expected: str
) -> None:
    from tt_scheduler.vllm.scheduler import TTScheduler

    config = scripted.make_config(tt=options, chunked=chunked, max_num_batched_tokens=512)
    with caplog.at_level(logging.INFO, "vllm.tt.scheduler"):
        scripted.make_scheduler(TTScheduler, config)
    assert any(expected in record.getMessage() for record in caplog.records)


def test_a_wrong_option_stops_the_launch(scripted: ModuleType) -> None:
    from tt_scheduler.vllm.scheduler import TTScheduler

    config = scripted.make_config(tt={"decode_interleave_prefill_steps": 0})
    with pytest.raises(ValueError, match="decode_interleave_prefill_steps"):
        scripted.make_scheduler(TTScheduler, config)


def test_images_that_must_stay_whole_forbid_short_chunks(scripted: ModuleType) -> None:
    from tt_scheduler.vllm.pacing import chunking_of

    config = scripted.make_config()
    assert chunking_of(config, 16).allowed
    config.scheduler_config.is_multimodal_model = True
    assert chunking_of(config, 16).allowed
    config.scheduler_config.disable_chunked_mm_input = True
    assert not chunking_of(config, 16).allowed


def test_the_widest_decode_batch_is_logged(make: Any, scripted: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    engine = make(None)
    engine.add(*(scripted.make_request(name, [5] * 20, 5) for name in "abc"))
    with caplog.at_level(logging.INFO, "vllm.tt.scheduler"):
        engine.run()
    assert "TT scheduler: widest decode batch reached 3 request row(s)" in caplog.text
