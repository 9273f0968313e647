"""What it means that a family has a feature: the run that its test needs, and the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from family import Family
from launch import Run
from served import DEVICE, HOST, Served
from tiny import write_bundle

LANES = 2


def lanes_run(family: Family, folder: Path) -> Run:
    """The family's class on two lanes of one mesh, each with half of the rows."""
    module, _, name = family.target.partition(":")
    source = f"from {module} import {name} as Model\n"
    bundle = write_bundle(folder, f"lanes_{family.name}", source, arch=family.architecture, data_parallel="lanes")
    few = Run({"data_parallel_size": LANES, "max_num_seqs": 4}, {}, {"MESH_DEVICE": "N300", **bundle})
    return few.over(DEVICE)


RUNS = ("device", "host", "lanes", "few blocks")
RUN_OF = {"host sampling": "host", "logprobs": "host", "lanes": "lanes", "preempt/resume": "few blocks"}
"""In which run a feature is tested: those left out in the first."""


def run_named(name: str, family: Family, folder: Path) -> Run:
    """The settings of a run, besides the family's. `folder` takes what it has to write."""
    if name == "lanes":
        return lanes_run(family, folder)
    return {"device": DEVICE, "host": HOST, "few blocks": family.few_blocks.over(DEVICE)}[name]


def prefill(served: Served) -> None:
    """First tokens come out of steps that are prefill only."""
    assert served.batch
    assert any(step["phase"] == "prefill" for step in served.engine.steps())


def decode(served: Served) -> None:
    """Several requests decode in one step, and every token is the reference's."""
    assert served.batch
    assert max(step["requests"] for step in served.engine.steps() if step["phase"] == "decode") > 4


def chunks(served: Served) -> None:
    """Prompts longer than the budget are computed in several steps, of which the last gives a token."""
    budget = served.engine.config.scheduler_config.max_num_batched_tokens
    assert max(len(asked.prompt) for asked in served.batch) > 2 * budget
    prefills = [step for step in served.engine.steps() if step["phase"] == "prefill"]
    assert max(step["tokens"] for step in prefills) <= budget
    assert any(step["sampled"] is None for step in prefills)


def prefix_cache(served: Served) -> None:
    """A second time the blocks of a common prefix are found, and the answers are the same."""
    again = served.batch[-4:]
    served.exact(again)
    cached = [output.num_cached_tokens for output in served.outputs]
    assert min(cached) >= 128, f"of prompts that were computed before, {cached} tokens were found in the cache"


def async_scheduling(served: Served) -> None:
    """Decode steps are submitted while the one before is in flight."""
    assert served.batch
    assert served.engine.config.scheduler_config.async_scheduling
    assert any(step.get("ahead") for step in served.engine.steps())


def preemption(served: Served) -> None:
    """Twelve mixed requests that do not fit: some are preempted, computed again, and end as the reference says."""
    served.exact(served.family.requests)
    assert served.engine.metric("vllm:num_preemptions") > 0


def lanes(served: Served) -> None:
    """Both lanes decode in one step; no request notices."""
    assert served.engine.worker.lanes == LANES
    assert served.batch
    per_lane = served.engine.worker.rows // LANES
    assert max(step["requests"] for step in served.engine.steps() if step["phase"] == "decode") > per_lane


def device_sampling(served: Served) -> None:
    """No step goes to the host, but prefills in which a prompt is not at its end yet."""
    assert served.batch
    on_host = [step for step in served.engine.steps() if step["sampled"] == "host"]
    assert all(step["because"] == ["CHUNK_NOT_FINAL"] for step in on_host)
    assert any(step["phase"] == "prefill" and step["sampled"] == "device" for step in served.engine.steps())


def host_sampling(served: Served) -> None:
    """All steps go to the host."""
    assert served.batch
    assert {step["sampled"] for step in served.engine.steps()} - {None} == {"host"}


def logprobs(served: Served) -> None:
    """The five best of every token are the reference's."""
    asked = [served.batch[i] for i in (0, 4, 7)]
    for one, output in zip(asked, served.generate(asked, logprobs=5), strict=True):
        same_logprobs(served, one, output)


def same_logprobs(served: Served, asked: Any, output: Any) -> None:
    """The logprobs of an output are those of the reference: the sampled token's and the five best."""
    expected = served.answers.reference.logprobs(asked, served.answers.of(asked))
    assert list(output.token_ids) == served.answers.of(asked)
    for row, entry in zip(expected, output.logprobs, strict=True):
        best = row.topk(5)
        assert set(best.indices.tolist()) <= set(entry)
        found = [entry[token].logprob for token in best.indices.tolist()]
        assert found == pytest.approx(best.values.tolist(), abs=1e-3)


def images(served: Served) -> None:
    """Requests with images beside others without, each as the reference answers it."""
    assert {bool(asked.media) for asked in served.batch} == {True, False}


CHECKS: dict[str, Callable[[Served], None]] = {
    "prefill": prefill,
    "decode": decode,
    "chunks": chunks,
    "prefix cache": prefix_cache,
    "async": async_scheduling,
    "preempt/resume": preemption,
    "lanes": lanes,
    "device sampling": device_sampling,
    "host sampling": host_sampling,
    "logprobs": logprobs,
    "images": images,
}
