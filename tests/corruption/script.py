"""The worker's core on the strict software mesh, driven step by step by a script in place of an engine."""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from tt_hostmesh import HostRuntime
from tt_hostmesh.mesh import HostMesh
from tt_hostmesh.synthetic.checkpoint import configuration
from tt_hostmesh.synthetic.cost import DeviceCost
from tt_hostmesh.synthetic.digest import continuation
from tt_hostmesh.synthetic.generator import SyntheticForCausalLM
from tt_sampling.host.sampler import HostSampler
from tt_sampling.parameters import RowSampling
from tt_sampling.placement import DeviceSampler, Mode
from tt_worker import kv
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.inflight import InFlight
from tt_worker.kv import CacheLayout, LayerCache
from tt_worker.pages import PageTable, PageTables
from tt_worker.reload import ReloadPlanner
from tt_worker.rows import RowTable
from tt_worker.runner import Runner, RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.step import Admission, StepRequest, StepResult
from tt_worker.steplog import StepLog
from tt_worker.warmup import WarmupPlan, warm_up

BLOCK, ROWS, POOL = 32, 4, 64
GREEDY = RowSampling(temperature=0.0)
ON_HOST = RowSampling(temperature=0.0, logit_bias=((3, 0.0),))
"""Greedy too, and a reason to sample on the host."""
PENALISED = RowSampling(temperature=0.0, frequency_penalty=1.0, presence_penalty=1.0)


class Host:
    """The host sampler for parameters in plain values."""

    def __init__(self, vocabulary: int) -> None:
        self._sampler = HostSampler(vocabulary)

    def admit(self, row: int, params: RowSampling, prompt: Any, output: Any, *, request_id: str) -> RowSampling:
        self._sampler.admit(row, params, row, prompt, output)
        return params

    def release(self, row: int) -> None:
        self._sampler.release(row)

    def device_logprobs(self, token_ids: Any, given: Any, asked: Any) -> Any:
        return given

    def sample(self, logits: torch.Tensor, rows: Sequence[int], *, advance: Any, grammar: Any) -> Any:
        sampled = self._sampler.sample(logits.contiguous(), rows)
        return SimpleNamespace(token_ids=sampled.tokens.tolist(), late=sampled.late, failed={})


@dataclass
class Asked:
    """A request as an engine sees it; `output`: what the engine has read."""

    name: str
    prompt: list[int]
    sampling: RowSampling
    lane: int
    output: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    tenancy: int = 0


@contextmanager
def script(*, lanes: int = 1, **settings: Any) -> Iterator[Script]:
    """A script on a mesh of its own, with a device for each lane. Settings: those of `Script`."""
    runtime = HostRuntime()
    if lanes > 1:
        runtime.set_fabric_config(config="FABRIC_1D")
    mesh = runtime.open_mesh_device((1, lanes), trace_region_size=50_000_000)
    with ExitStack() as closing:
        if lanes > 1:
            closing.callback(runtime.set_fabric_config, config="DISABLED")
        closing.callback(runtime.close_mesh_device, mesh)
        closing.callback(lambda: [runtime.close_mesh_device(lane) for lane in mesh.get_submeshes()])
        one = Script(runtime, mesh, lanes=lanes, **settings)
        closing.callback(one.runner.close)
        yield one


class Script:
    """An engine whose scheduler is the test. It keeps the counts that an engine keeps and nothing else."""

    def __init__(
        self,
        runtime: HostRuntime,
        mesh: HostMesh,
        *,
        lanes: int = 1,
        vocabulary: int = 1000,
        max_len: int = 256,
        overlap: bool = True,
    ) -> None:
        self.vocabulary = vocabulary
        self._random = random.Random(5)
        config = SimpleNamespace(**configuration(vocabulary, max_len, DeviceCost(decode_ms=0, prefill_ms_per_token=0)))
        self.model = SyntheticForCausalLM.initialize_vllm_model(
            config, mesh, ROWS, max_seq_len=max_len, tt_data_parallel=lanes
        )
        self.calls: list[str] = []
        self._count("prefill_forward", "release_request")
        adapter = ModelAdapter(
            self.model,
            rows=ROWS,
            vocab_size=vocabulary,
            trace=TraceMode.of("all"),
            event_synchronize=runtime.event_synchronize,
            lanes=lanes,
        )
        layer = LayerCache(0, 0, config.num_key_value_heads, BLOCK, config.head_dim, torch.bfloat16)
        layers = tuple(layer.in_buffer(i) for i in range(config.num_hidden_layers))
        adapter.kv_cache = kv.allocate(self.model, CacheLayout(POOL, layers), 1)
        adapter.layer_groups = (0,) * len(layers)
        width = -(-max_len // BLOCK)
        warm_up(adapter, WarmupPlan(sample_prefill=True, sample_decode=True, pages=width))
        self.pages = PageTables([PageTable(ROWS, width, POOL)], [None], BLOCK)
        samplers = RowSamplers(ROWS, vocabulary, DeviceSampler(mode=Mode.ALL), Host(vocabulary))
        self.runner = Runner(
            RunnerConfig(alignment=32, overlap=overlap),
            adapter,
            RowTable(ROWS, lanes),
            self.pages,
            samplers,
            ReloadPlanner(resident_inputs=True),
            StepLog(),
        )
        self._free = list(range(1, POOL))
        self._requests: dict[str, Asked] = {}
        self._leaving: list[str] = []
        self._unread: deque[tuple[list[tuple[Asked, int]], InFlight[StepResult]]] = deque()

    def ask(
        self, name: str, length: int, sampling: RowSampling = GREEDY, *, lane: int = 0, prefix: list[int] | None = None
    ) -> Asked:
        """A request with a prompt of that many tokens, `prefix` and then random ones."""
        known = prefix or []
        prompt = [*known, *(self._random.randrange(self.vocabulary) for _ in range(length - len(known)))]
        request = self._requests[name] = Asked(name, prompt, sampling, lane)
        return request

    def prefill(self, *parts: str | tuple[str, int], cached: int = 0, blocks: list[int] | None = None) -> None:
        """One step that computes these requests to the end of what is known of them, or so many tokens more.

        cached, blocks: a new request finds so many tokens in these blocks
        """
        admissions: list[Admission] = []
        scheduled: dict[str, int] = {}
        computed: dict[str, int] = {}
        grown: dict[str, list[list[int]]] = {}
        sampled: list[str] = []
        for part in parts:
            name, count = part if isinstance(part, tuple) else (part, None)
            r = self._requests[name]
            end = len(r.prompt) + len(r.output)
            fresh = not r.blocks
            if fresh:
                r.blocks, r.computed = list(blocks or []), cached
            count = end - r.computed if count is None else count
            new = self._grow(r, r.computed + count)
            if fresh:
                admissions.append(
                    Admission(name, r.prompt, list(r.output), r.computed, [list(r.blocks)], r.sampling, r.lane)
                )
            else:
                computed[name] = r.computed
                grown |= {name: [new]} if new else {}
            r.computed += count
            scheduled[name] = count
            sampled += [name] if r.computed == end else []
        self._run(StepRequest(self._left(), admissions, computed, grown, scheduled), sampled)

    def decode(self, *names: str) -> None:
        """One step that computes a token of each of these."""
        computed = {name: self._requests[name].computed for name in names}
        grown = {name: [new] for name in names if (new := self._grow(self._requests[name], computed[name] + 1))}
        for name in names:
            self._requests[name].computed += 1
        self._run(StepRequest(self._left(), (), computed, grown, dict.fromkeys(names, 1)), list(names))

    def finish(self, name: str) -> None:
        """It leaves with the next step."""
        self._leaving.append(name)
        self._give_back(self._requests[name])

    def preempt(self, name: str, *, forget_unread: bool = False) -> None:
        """It leaves with the next step and comes back by `prefill`.

        forget_unread: the engine drops the tokens of steps that it has not read, as vLLM does when it must
        """
        request = self._requests[name]
        if forget_unread:
            request.tenancy += 1
        self.finish(name)

    def read(self) -> None:
        """Take the result of the oldest step."""
        expected, flight = self._unread.popleft()
        result = flight.result()
        tokens = dict(zip(result.request_ids, result.token_ids, strict=True)) if result is not None else {}
        for request, tenancy in expected:
            got = tokens.get(request.name)
            assert got is not None, f"the step's result for {request.name} is lost"
            assert len(got) == 1, f"{request.name} got {got} from one step"
            if tenancy == request.tenancy:
                request.output += got

    def settle(self) -> None:
        """Take all results."""
        while self._unread:
            self.read()

    def check(self, **lengths: int) -> None:
        """Each request has so many tokens, and they are those that it gets alone."""
        self.settle()
        for name, length in lengths.items():
            request = self._requests[name]
            expected = continuation(request.prompt, length, self.vocabulary)
            assert request.output == expected, f"{name}: {request.output} in place of {expected}"

    def prefills(self) -> int:
        """Prefill calls that reached the model."""
        return self.calls.count("prefill_forward")

    def _run(self, step: StepRequest, sampled: list[str]) -> None:
        while len(self._unread) >= 2:
            self.read()
        self.runner.execute(step)
        flight = self.runner.sample()
        assert flight is not None
        requests = [self._requests[name] for name in sampled]
        self._unread.append(([(request, request.tenancy) for request in requests], flight))

    def _left(self) -> list[str]:
        leaving, self._leaving = self._leaving, []
        return leaving

    def _grow(self, request: Asked, tokens: int) -> list[int]:
        new = [self._free.pop(0) for _ in range(-(-tokens // BLOCK) - len(request.blocks))]
        request.blocks += new
        return new

    def _give_back(self, request: Asked) -> None:
        """Blocks are used again at once, the last one first: whoever still writes to them is seen."""
        self._free[:0] = reversed(request.blocks)
        request.blocks = []

    def _count(self, *names: str) -> None:
        for name in names:
            setattr(self.model, name, self._counted(name, getattr(self.model, name)))

    def _counted(self, name: str, method: Any) -> Any:
        @functools.wraps(method)
        def call(*args: Any, **keywords: Any) -> Any:
            self.calls.append(name)
            return method(*args, **keywords)

        return call
