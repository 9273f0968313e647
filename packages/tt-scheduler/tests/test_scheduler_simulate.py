"""The simulator: cost model, workloads, figures, timeline, command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_scheduler import InterleaveOptions, Phase
from tt_scheduler.simulate import (
    PRESETS,
    Arrival,
    CostModel,
    EngineSize,
    Results,
    Run,
    Scenario,
    Served,
    Target,
    poisson,
    read_trace,
)
from tt_scheduler.simulate.__main__ import main
from tt_scheduler.simulate.progress import Progress
from tt_scheduler.simulate.results import percentile
from tt_scheduler.simulate.timeline import trace_events

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
T3K = PRESETS["llama-8b-t3k"]


def test_the_cost_of_a_step() -> None:
    assert T3K.decode_ms(1, 0) == pytest.approx(15.6)
    assert T3K.decode_ms(32, 100_000) == pytest.approx(15.6 + 31 * 0.2 + 16)
    assert T3K.prefill_ms(4054) == pytest.approx(1020)
    assert CostModel(1, 0, 0, 2, 1000, overhead_ms=3).step_ms(Phase.PREFILL, 10, 1, 0) == pytest.approx(15)


@pytest.mark.parametrize(("overlapped", "paid"), [(True, 2), (False, 3)])
def test_the_engines_own_time_is_hidden_by_a_decode_step_that_follows_another(overlapped: bool, paid: int) -> None:
    """Three tokens: a prefill, a decode step after it, and a steady one. Fails when a steady step pays, too."""
    cost = CostModel(10, 0, 0, 20, 1000, overhead_ms=3)
    run = Scenario("default").run([Arrival(0.0, 100, 3)], cost, EngineSize(rows=1, kv_tokens=4096), overlapped)
    assert run.served[0].tokens[-1] == pytest.approx((120 + 2 * 10 + paid * 3) / 1e3)


@pytest.mark.parametrize(
    ("preset", "users", "tokens_per_s"),
    [
        # Published tokens a second and user: one user, and 32 users with prompts of 128 tokens.
        ("llama-8b-n150", 1, 28.3),
        ("llama-8b-n300", 1, 44.2),
        ("llama-8b-t3k", 1, 64.3),
        ("llama-8b-n150", 32, 22.3),
        ("llama-8b-n300", 32, 33.5),
        ("llama-8b-t3k", 32, 45.6),
        ("llama-70b-t3k", 1, 16.6),
        ("llama-70b-t3k", 32, 14.8),
        ("llama-70b-galaxy", 32, 72.5),
    ],
)
def test_presets_are_the_published_figures(preset: str, users: int, tokens_per_s: float) -> None:
    ms = PRESETS[preset].decode_ms(users, context=0)
    assert 1e3 / ms == pytest.approx(tokens_per_s, rel=0.03)


def test_costs_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="per_user_ms"):
        CostModel(1, -1, 0, 0, 100)
    with pytest.raises(ValueError, match="prompts would never end"):
        CostModel(1, 0, 0, 0, 0)


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_trace_is_read_stretched_cut_and_sorted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "trace.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:48.6805900,9000,20",
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:56.6805900,10,1",
    )
    arrivals = read_trace(path, stretch=2.0, seconds=10, max_prompt=8192)
    assert [(round(a.at, 3), a.prompt, a.output) for a in arrivals] == [(0.0, 374, 44), (4.0, 8192, 20)]


def test_a_trace_without_its_columns_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.csv", "TIMESTAMP,Prompt", "2023-11-16 18:15:46.6,5")
    with pytest.raises(ValueError, match="ContextTokens, GeneratedTokens"):
        read_trace(path)
    with pytest.raises(ValueError, match="no request"):
        read_trace(write(path, "TIMESTAMP,ContextTokens,GeneratedTokens"))


def test_random_arrivals_repeat_with_their_seed() -> None:
    mix = poisson(5, 100, [10, 20], [3], seed=1)
    assert mix == poisson(5, 100, [10, 20], [3], seed=1)
    assert len(mix) == pytest.approx(500, rel=0.2)
    assert {arrival.prompt for arrival in mix} == {10, 20}
    with pytest.raises(ValueError, match="rate"):
        poisson(0, 100, [1], [1])


def test_an_arrival_has_a_prompt_and_an_output() -> None:
    with pytest.raises(ValueError, match="a prompt and an output"):
        Arrival(0, 0, 1)


def test_percentiles_interpolate() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([0, 10], 0.99) == pytest.approx(9.9)


def test_goodput_counts_requests_that_met_both_targets() -> None:
    served = [
        Served(Arrival(0, 1, 3), [1.0, 1.1, 1.2]),
        Served(Arrival(0, 1, 3), [2.5, 2.6, 2.7]),
        Served(Arrival(0, 1, 3), [1.0, 1.1, 1.5]),
        Served(Arrival(0, 1, 1), [2.0]),
    ]
    results = Results.of(Run(served), Target(ttft_s=2.0, gap_s=0.2))
    assert results.goodput == 0.5
    assert results.itl_max == pytest.approx(0.4)


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 400), st.integers(1, 20)), min_size=1, max_size=20))
def test_every_token_of_every_request_comes_once_and_in_order(arrivals: list[tuple[float, int, int]]) -> None:
    workload = [Arrival(*arrival) for arrival in arrivals]
    for overlapped in (True, False):
        run = Scenario("x", chunk=64).run(workload, T3K, EngineSize(rows=4, kv_tokens=1024, block=16), overlapped)
        for served in run.served:
            assert len(served.tokens) == served.arrival.output
            assert served.arrival.at < served.tokens[0]
            assert served.tokens == sorted(served.tokens)
        ends = 0.0
        for step in run.steps:
            assert step.start >= ends - 1e-9
            ends = step.start + step.ms / 1e3


def test_a_run_can_be_repeated() -> None:
    workload = poisson(2, 30, [100, 900], [20], seed=2)
    scenario = Scenario("t", InterleaveOptions(decode_interleave_target_itl_ms=100), chunk=1024)
    runs = [scenario.run(workload, T3K, EngineSize()) for _ in range(2)]
    assert runs[0].steps == runs[1].steps


def test_lanes_share_the_steps() -> None:
    workload = poisson(4, 20, [100, 400], [30], seed=2)
    one = Results.of(Scenario("one", chunk=512).run(workload, T3K, EngineSize(rows=32)))
    four = Results.of(Scenario("four", chunk=512).run(workload, T3K, EngineSize(rows=32, lanes=4)))
    assert one.requests == four.requests == len(workload)
    assert four.decode_steps == pytest.approx(one.decode_steps, rel=0.3)


def test_a_scenario_is_read_from_the_command_line() -> None:
    scenario = Scenario.parse("name:chunk=512,prefill_steps=1,target_itl_ms=150,enabled=true")
    assert scenario.chunk == 512
    assert scenario.options == InterleaveOptions(decode_interleave_prefill_steps=1, decode_interleave_target_itl_ms=150)
    assert Scenario.parse("plain") == Scenario("plain")
    assert Scenario.parse("2:1 whole") == Scenario("2:1 whole")
    assert Scenario.parse("2:1:chunk=9") == Scenario("2:1", chunk=9)
    with pytest.raises(ValueError, match="'speed' is not one of"):
        Scenario.parse("x:speed=9")


def test_the_timeline_is_a_chrome_trace() -> None:
    run = Scenario("x", chunk=64).run([Arrival(0, 100, 5)], T3K, EngineSize())
    events = trace_events(run)
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices] == ["prefill", "prefill", "decode", "decode", "decode", "decode"]
    assert slices[1]["ts"] == pytest.approx(slices[0]["ts"] + slices[0]["dur"])
    assert slices[0]["args"] == {"tokens": 64, "users": 1}
    assert json.loads(json.dumps(events)) == events


def test_one_command_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--poisson", "2", "--seconds", "20", "--prompts", "64,512", "--outputs", "16", "--out", str(tmp_path)]
    arguments += ["--run", "none:enabled=false", "--run", "target:chunk=512,target_itl_ms=150"]
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert "| none | " in table
    assert (tmp_path / "results.md").read_text() == table
    assert set(json.loads((tmp_path / "results.json").read_text())) == {"none", "target"}
    assert json.loads((tmp_path / "timeline-target.json").read_text())["traceEvents"]


def test_plots_are_written_where_matplotlib_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert main(["--poisson", "1", "--seconds", "20", "--out", str(tmp_path)]) == 0
    for name in ("latency.png", "phases.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "absent.csv"], "absent.csv"),
        (["--poisson", "1", "--run", "x:speed=1"], "speed"),
        (["--poisson", "1", "--run", "x:prefill_steps=0"], "decode_interleave_prefill_steps"),
        (["--poisson", "1", "--rows", "5", "--lanes", "2"], "lanes"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_progress_bar_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("run")
    progress(0.5)
    progress.close()
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded traces are not here")
@pytest.mark.parametrize("overlapped", [True, False])
def test_a_target_of_150_ms_holds_on_a_recorded_chat_load(overlapped: bool) -> None:
    """The Azure conversation trace at a quarter of its rate, Llama-8B on T3K; docs/benchmarks/scheduling.md.

    The fixed 2:1 ratio with whole prompts keeps 11 % of the requests good; the target must keep 95 %.
    """
    workload = read_trace(TRACES / "azure-2023-conv.csv", stretch=4.0, seconds=1800, max_prompt=8192)
    size = EngineSize(rows=32, kv_tokens=131_072, block=32, budget=16_384)
    target = Scenario("target", InterleaveOptions(decode_interleave_target_itl_ms=150), chunk=8192)
    results = Results.of(target.run(workload, T3K, size, overlapped))
    assert results.goodput >= 0.95
    assert results.itl_p99 <= 0.150
    assert results.ttft_p50 <= 0.45
    default = Results.of(Scenario("2:1").run(workload, T3K, size, overlapped))
    assert default.goodput < 0.2
    assert results.busy == pytest.approx(default.busy, abs=0.01)
