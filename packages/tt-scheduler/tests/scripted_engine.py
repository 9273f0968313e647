"""vLLM's real scheduler with a scripted worker: the engine loop of EngineCore, without model, device or process.

The worker keeps its own view of every request and computes each token from the whole history it knows. A token that is
lost, doubled or computed on a stale history changes every later token, so comparing outputs is comparing schedules.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.model_executor.models.registry import ModelRegistry
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

VOCABULARY = 30_000
BLOCK = 16
ARCHITECTURE = "TTSchedulerStubForCausalLM"


class _Stub(torch.nn.Module):
    """What vLLM inspects in place of a model. Registered in this process, so that no inspection process starts."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()

    def embed_input_ids(self, input_ids: Any) -> Any:
        return input_ids

    def forward(
        self, input_ids: Any, positions: Any, intermediate_tensors: Any = None, inputs_embeds: Any = None
    ) -> Any:
        return input_ids

    def compute_logits(self, hidden_states: Any) -> Any:
        return hidden_states


def next_token(history: list[int]) -> int:
    """The scripted model: one token from the whole history."""
    return zlib.crc32(json.dumps(history).encode()) % (VOCABULARY - 10) + 10


def expected_output(prompt: list[int], count: int) -> list[int]:
    history = list(prompt)
    for _ in range(count):
        history.append(next_token(history))
    return history[len(prompt) :]


def model_folder() -> str:
    folder = tempfile.mkdtemp(prefix="tt-scheduler-stub-")
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 65536,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    return folder


ModelRegistry.register_model(ARCHITECTURE, _Stub)
MODEL = model_folder()
# Once: each call may draw a new root, and blocks hashed under two roots never match.
init_none_hash(sha256)


def make_config(
    *,
    asynchronous: bool = False,
    max_num_seqs: int = 4,
    max_num_batched_tokens: int = 128,
    max_model_len: int = 512,
    chunked: bool = True,
    prefix_caching: bool = False,
    policy: str = "fcfs",
    tt: dict[str, Any] | None = None,
    lanes: int | None = None,
    **scheduler: Any,
) -> VllmConfig:
    # The V1 contract is what the platform pins.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    additional: dict[str, Any] = {"tt": tt or {}}
    if lanes is not None:
        additional["_tt_resolved_lane_count"] = lanes
    with no_platform_rules():
        return VllmConfig(
            model_config=ModelConfig(
                model=MODEL, skip_tokenizer_init=True, dtype="float32", max_model_len=max_model_len
            ),
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=prefix_caching),
            scheduler_config=SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
                is_encoder_decoder=False,
                enable_chunked_prefill=chunked,
                async_scheduling=asynchronous,
                policy=policy,
                **scheduler,
            ),
            device_config=DeviceConfig("cpu"),
            additional_config=additional,
        )


@contextmanager
def no_platform_rules() -> Iterator[None]:
    """Whatever platform is active in this process changes nothing of a configuration: only the scheduler is tested."""
    platform = type(current_platform)
    with mock.patch.object(platform, "check_and_update_config", classmethod(lambda cls, vllm_config: None)):
        yield


class OpenGrammar:
    """Stands in for StructuredOutputManager: accepts everything, hands out one mask row a request."""

    def should_advance(self, request: Request, **more: Any) -> bool:
        """0.28 and 0.29 hand the new tokens over too."""
        return False

    def accept_tokens(self, request: Request, tokens: list[int]) -> bool:
        return True

    def grammar_bitmask(self, requests: dict[str, Request], ids: list[str], spec: dict[str, list[int]]) -> Any:
        # One shared buffer, as vLLM has it: a second call overwrites what the first returned.
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros((256, 4), dtype=np.int32)
        for index, request_id in enumerate(ids):
            self.buffer[index] = zlib.crc32(request_id.encode()) % 2**31
        return self.buffer[: len(ids)]


def kv_spec() -> FullAttentionSpec:
    return FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)


def make_scheduler(cls: type, config: VllmConfig, num_blocks: int = 1000, log_stats: bool = False) -> Any:
    config.cache_config.num_gpu_blocks = num_blocks
    groups = [KVCacheGroupSpec(["model.layers.0"], kv_spec())]
    kv = KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
    return cls(
        vllm_config=config,
        kv_cache_config=kv,
        structured_output_manager=OpenGrammar(),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        include_finished_set=False,
        log_stats=log_stats,
    )


def make_request(
    name: str,
    prompt: list[int],
    max_tokens: int,
    *,
    priority: int = 0,
    arrival: float = 0.0,
    structured: bool = False,
    cached: bool = False,
) -> Request:
    params = SamplingParams(
        max_tokens=max_tokens,
        ignore_eos=True,
        structured_outputs=StructuredOutputsParams(regex="a+") if structured else None,
    )
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling_params=params,
        pooling_params=None,
        arrival_time=arrival,
        priority=priority,
        block_hasher=get_request_block_hasher(BLOCK, sha256) if cached else None,
    )


@dataclass
class Held:
    """What the worker knows of one request."""

    tokens: list[int]
    blocks: list[int]
    computed: int = 0
    lane: int = 0
    prefilled: bool = False


@dataclass
class StepRecord:
    phase: str
    scheduled: dict[str, int]
    finished: set[str]
    preempted: set[str]
    resumed: set[str]
    admitted: set[str]


class WorkerError(AssertionError):
    """The scheduler told the worker something that cannot be."""


@dataclass
class ScriptedWorker:
    """Follows the V1 contract between scheduler and worker and complains about everything that contradicts it."""

    share_blocks: bool = False
    held: dict[str, Held] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)

    def execute(self, output: Any) -> ModelRunnerOutput:
        lane_of = getattr(output, "lane_of", {})
        for request_id in output.finished_req_ids:
            self.held.pop(request_id, None)
        admitted = {new.req_id for new in output.scheduled_new_reqs}
        resumed = set(output.scheduled_cached_reqs.resumed_req_ids)
        self._admit(output, lane_of)
        self._grow(output)
        prefill = {r for r in output.num_scheduled_tokens if not self.held[r].prefilled}
        phase = self._phase(output, prefill)
        sampled = [self._compute(r, n) for r, n in output.num_scheduled_tokens.items()]
        self._check_blocks(output)
        self.steps.append(
            StepRecord(
                phase,
                dict(output.num_scheduled_tokens),
                set(output.finished_req_ids),
                set(output.preempted_req_ids or ()),
                resumed,
                admitted,
            )
        )
        ids = list(output.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={r: i for i, r in enumerate(ids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def _admit(self, output: Any, lane_of: dict[str, int]) -> None:
        for new in output.scheduled_new_reqs:
            if new.req_id in self.held:
                raise WorkerError(f"{new.req_id} is new and known")
            self.held[new.req_id] = Held(
                list(new.prompt_token_ids), list(new.block_ids[0]), new.num_computed_tokens, lane_of.get(new.req_id, 0)
            )
        cached = output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            if request_id in cached.resumed_req_ids:
                held = self.held[request_id]
                held.tokens = list(cached.all_token_ids[request_id])
                held.blocks = list(cached.new_block_ids[index][0])
                held.computed, held.prefilled = cached.num_computed_tokens[index], False

    def _grow(self, output: Any) -> None:
        cached = output.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            held = self.held[request_id]
            if cached.num_computed_tokens[index] != held.computed:
                raise WorkerError(f"{request_id}: computed {cached.num_computed_tokens[index]}, worker {held.computed}")
            if request_id not in cached.resumed_req_ids and cached.new_block_ids[index] is not None:
                held.blocks += cached.new_block_ids[index][0]

    def _phase(self, output: Any, prefill: set[str]) -> str:
        if not output.num_scheduled_tokens:
            return "empty"
        if prefill and len(prefill) < len(output.num_scheduled_tokens):
            raise WorkerError(f"a mixed step: {output.num_scheduled_tokens}, of which prefill {prefill}")
        return "prefill" if prefill else "decode"

    def _compute(self, request_id: str, count: int) -> list[int]:
        held = self.held[request_id]
        held.computed += count
        if held.computed > len(held.tokens):
            raise WorkerError(f"{request_id}: computes position {held.computed} of {len(held.tokens)} known tokens")
        if held.computed > len(held.blocks) * BLOCK:
            raise WorkerError(f"{request_id}: {held.computed} tokens in {len(held.blocks)} blocks")
        if held.computed < len(held.tokens):
            return []
        held.prefilled = True
        token = next_token(held.tokens)
        held.tokens.append(token)
        return [token]

    def _check_blocks(self, output: Any) -> None:
        if self.share_blocks:
            return
        owner: dict[tuple[int, int], str] = {}
        for request_id in output.num_scheduled_tokens:
            held = self.held[request_id]
            for block in held.blocks:
                other = owner.setdefault((held.lane, block), request_id)
                if other != request_id:
                    raise WorkerError(f"block {block} of lane {held.lane} belongs to {other} and {request_id}")


class ScriptedEngine:
    """EngineCore.step and step_with_batch_queue: same order of calls, depth two when asynchronous."""

    def __init__(self, scheduler: Any, asynchronous: bool, share_blocks: bool = False) -> None:
        self.scheduler = scheduler
        self.asynchronous = asynchronous
        self.worker = ScriptedWorker(share_blocks)
        self.outputs: dict[str, list[int]] = {}
        self.finished: set[str] = set()
        self.stats: list[Any] = []
        self._queue: deque[tuple[Any, ModelRunnerOutput]] = deque()

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.outputs[request.request_id] = []
            self.scheduler.add_request(request)

    def abort(self, *names: str) -> list[str]:
        return ids_of(self.scheduler.finish_requests(list(names), RequestStatus.FINISHED_ABORTED))

    def step(self) -> str:
        """One call of the engine's loop body. Returns the phase that was scheduled, "" when nothing was."""
        if not self.busy:
            return ""
        phase = ""
        if self.scheduler.has_requests():
            output = self.scheduler.schedule(False)
            result = self.worker.execute(output)
            phase = self.worker.steps[-1].phase
            self._queue.append((output, result))
            if self.asynchronous and len(self._queue) < 2 and (phase != "empty" or self.scheduler.has_requests()):
                return phase
        output, result = self._queue.popleft()
        for outputs in self.scheduler.update_from_output(output, result).values():
            self._collect(outputs)
        return phase

    def run(self, limit: int = 5000) -> None:
        for _ in range(limit):
            if not self.busy:
                return
            self.step()
        raise AssertionError(f"not finished after {limit} steps: {self.scheduler.get_request_counts()}")

    @property
    def phases(self) -> list[str]:
        return [record.phase for record in self.worker.steps]

    def random_load(self, seed: int, count: int, aborts: bool = True, cached: bool = False) -> None:
        """Serve random requests that arrive and abort at random; compare every output with the scripted model's."""
        draw = random.Random(seed)
        shared = [7] * 40
        wanted: dict[str, list[int]] = {}
        aborted: set[str] = set()
        for index in range(5000):
            if len(wanted) < count and draw.random() < 0.3:
                prompt = [draw.randrange(10, 100) for _ in range(draw.randint(1, 110))]
                prompt = shared + prompt if cached and index % 2 else prompt
                name, length = f"r{len(wanted)}", draw.randint(1, 60)
                wanted[name] = expected_output(prompt, length)
                self.add(
                    make_request(name, prompt, length, priority=draw.randint(0, 3), arrival=float(index), cached=cached)
                )
            alive = sorted(name for name in wanted if name not in self.finished | aborted)
            if aborts and alive and draw.random() < 0.02:
                victim = draw.choice(alive)
                if self.abort(victim) != [victim]:
                    raise WorkerError(f"the abort of {victim} did not return it")
                aborted.add(victim)
            self.step()
            if len(wanted) == count and not self.busy:
                break
        for name, tokens in wanted.items():
            got = self.outputs[name]
            if got != (tokens[: len(got)] if name in aborted else tokens):
                raise WorkerError(f"{name}: {len(got)} tokens of {len(tokens)}, or wrong ones")
        if self.worker.held:
            raise WorkerError(f"the worker was not told that these left: {sorted(self.worker.held)}")

    @property
    def busy(self) -> bool:
        return bool(self.scheduler.has_requests() or self._queue)

    def _collect(self, outputs: Any) -> None:
        if outputs.scheduler_stats is not None:
            self.stats.append(outputs.scheduler_stats)
        for item in outputs.outputs:
            self.outputs[item.request_id] += item.new_token_ids
            if item.finish_reason is not None:
                self.finished.add(item.request_id)


class ScriptedExecutor(Executor):
    """The scripted worker behind a real EngineCore. One instance a core; `num_blocks` blocks a lane."""

    num_blocks = 100

    def _init_executor(self) -> None:
        self.worker = ScriptedWorker()
        self._results: deque[ModelRunnerOutput] = deque()
        self.grammars: list[Any] = []

    def collective_rpc(self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, **_: Any) -> Any:
        answers = {
            "get_kv_cache_spec": {"model.layers.0": kv_spec()},
            "determine_available_memory": self.num_blocks * kv_spec().page_size_bytes,
            "get_supported_kv_cache_layouts": ["LBNHC"],
        }
        return [answers.get(method)]

    def compile_or_warm_up_model(self) -> None:
        """There is nothing to warm up."""

    def initialize_from_config(self, kv_cache_configs: Any) -> None:
        """There is no cache to allocate."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        # Through a pickle, as the executors that run workers in processes of their own send it.
        scheduler_output = pickle.loads(pickle.dumps(scheduler_output))
        result = self.worker.execute(scheduler_output)
        if scheduler_output.total_num_scheduled_tokens:
            self._results.append(result)
            result = None
        return self._ready(result) if non_block else result

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        self.grammars.append(grammar_output)
        result = self._results.popleft()
        return self._ready(result) if non_block else result

    def check_health(self) -> None:
        """Always well."""

    @staticmethod
    def _ready(result: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(result)
        return future


def ids_of(finished: Any) -> list[str]:
    """What `finish_requests` returned: requests, and before 0.26 pairs of an id and a client."""
    return [item[0] if isinstance(item, tuple) else item.request_id for item in finished]
