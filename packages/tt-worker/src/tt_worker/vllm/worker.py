"""TTWorker: the worker that vLLM's executors drive. It wires the parts together and decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import torch
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from tt_platform.capacity import Serving, kv_blocks, publish, rows_for, tokens_all_users
from tt_platform.lifecycle import DeviceSession
from tt_platform.options import TTOptions
from tt_platform.runtime import Runtime, RuntimeChoice, load_runtime
from tt_platform.vllm.additional import block_output, lane_count
from tt_platform.vllm.models import served_model
from tt_platform.vllm.ranks import bind_rank
from tt_platform.vllm.shutdown import abort_requests_at_shutdown
from tt_registry import load_class
from tt_sampling.placement import DeviceSampler, Mode, returns_top_logprobs
from tt_sampling.reasons import ReasonTally
from tt_sampling.vllm.host import HostSampling
from tt_worker import kv
from tt_worker.adapter import ModelAdapter, TraceMode
from tt_worker.block_runner import BlockRunner
from tt_worker.failure import TimeLimit
from tt_worker.inputs import alignment_of
from tt_worker.loaded import Loaded
from tt_worker.loading import LoadRequest, load
from tt_worker.pages import PageTable, PageTables
from tt_worker.reload import ReloadPlanner
from tt_worker.rows import RowTable
from tt_worker.runner import Runner, RunnerConfig
from tt_worker.sampling import RowSamplers
from tt_worker.steplog import StepLog
from tt_worker.vllm.kv_spec import bytes_per_block, cache_layout, kv_cache_spec, sliding_window, with_margin
from tt_worker.vllm.metrics import StepMetrics
from tt_worker.vllm.translate import AsyncOutput, Translator, grammar_mask, runner_output
from tt_worker.warmup import WarmupPlan, warm_up

if TYPE_CHECKING:
    from vllm.tasks import SupportedTask
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec
    from vllm.v1.outputs import ModelRunnerOutput

logger = logging.getLogger("vllm.tt.worker")

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound="TTWorker")


def of_start(method: Callable[Concatenate[W, P], R]) -> Callable[Concatenate[W, P], R]:
    """A call of an engine's start. The mesh does not outlive its failure, which vLLM does not tell an in-process
    worker."""

    @wraps(method)
    def part(self: W, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._open_session.start():
            return method(self, *args, **kwargs)

    return part


class TTWorker(WorkerBase):
    """One process, one mesh, one model object. Source of the calls: vLLM's executors and engine core, 0.24 to 0.33."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("shared_worker_lock", None)
        super().__init__(*args, **kwargs)
        self.options = TTOptions.of(self.vllm_config.additional_config)
        self.lanes = lane_count(self.vllm_config)
        self.sequences = self.scheduler_config.max_num_seqs
        self.rows = self.sequences  # of the batch: more than sequences where the model knows other sizes only
        self.metrics = StepMetrics(self.model_config.served_model_name, self.parallel_config)
        self.loaded = Loaded(StepLog(self.options.step_log), ReasonTally(self.metrics.count))
        self._session: DeviceSession | None = None

    # Start

    def init_device(self) -> None:
        abort_requests_at_shutdown(self.vllm_config)
        # Before anything of tt-metal is imported: ttnn reads the visible chips once.
        rank_grid = bind_rank(self.vllm_config)
        self.runtime: Runtime = load_runtime(RuntimeChoice.from_environ())
        served = served_model(
            list(self.model_config.hf_config.architectures or ()), test_models=self.options.register_test_models
        )
        if served.resolution is None or served.problem is not None:
            raise ValueError(served.problem)
        self.model_class = load_class(served.resolution)
        self.capabilities = served.capabilities
        self.sees = served.resolution.multimodal
        self.rows = self.lanes * rows_for(self.sequences // self.lanes, served.batch_sizes)
        session = self._session = DeviceSession(
            self.runtime, self.options, model_fabric=self.capabilities.fabric_config, grid=rank_grid
        )
        mesh = session.open()
        session.before_close(self.loaded.release)
        session.close_with(self)
        self.device = torch.device("cpu")
        grid = "x".join(map(str, tuple(mesh.shape)))
        self.loaded.log.event("mesh opened", runtime=self.runtime.name, grid=grid, devices=mesh.get_num_devices())

    def _build_model(self) -> Any:
        """The model object, on the open mesh."""
        request = LoadRequest(
            hf_config=self.model_config.hf_config,
            rows=self.rows,
            max_seq_len=self.model_config.max_model_len,
            lanes=self.lanes,
            optimizations=self.options.optimizations,
            engine_config=self.vllm_config,
        )
        self.loaded.model = load(self.model_class, self._mesh, request)
        return self.loaded.model

    @of_start
    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        model = self._build_model()
        self.trace = TraceMode.of(self.options.trace_mode)
        self.loaded.adapter = ModelAdapter(
            model,
            rows=self.rows,
            vocab_size=self.model_config.get_vocab_size(),
            trace=self.trace,
            event_synchronize=self.runtime.event_synchronize,
            lanes=self.lanes,
            multimodal=self.model_config.is_multimodal_model and self.sees,
            mrope=self.model_config.uses_mrope,
        )
        logger.info(
            "TTModelRunner: trace_mode=%s, sample_on_device_mode=%s, enable_model_warmup=%s",
            self.options.trace_mode,
            self.options.sample_on_device_mode,
            self.options.enable_model_warmup,
        )

    @property
    def _open_session(self) -> DeviceSession:
        if self._session is None:
            raise RuntimeError("the worker's device is not open: init_device comes first")
        return self._session

    @property
    def _mesh(self) -> Any:
        return self._open_session.mesh

    @property
    def _adapter(self) -> ModelAdapter:
        if self.loaded.adapter is None:
            raise RuntimeError("the worker has no model: load_model comes first")
        return self.loaded.adapter

    def get_model(self) -> Any:
        return self.loaded.model

    # KV cache

    @of_start
    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        return with_margin(kv_cache_spec(self.model_class, self.vllm_config), self._alignment - 1)

    @property
    def _alignment(self) -> int:
        declared = self.capabilities.chunked_prefill_token_alignment
        return alignment_of(declared, recurrent=self.model_config.is_hybrid)

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """Asked since 0.29. The model owns its cache: the name has no effect, and no attention backend could answer."""
        return ["LBNHC"]

    def set_kv_cache_layout(self, kv_cache_layout: str, *rest: Any) -> None:
        super().set_kv_cache_layout(kv_cache_layout, *rest)

    @of_start
    def determine_available_memory(self) -> int:
        """Bytes that make vLLM's planner arrive at the model's own block count."""
        spec = kv_cache_spec(self.model_class, self.vllm_config)
        serving = Serving(
            model_name=self.model_config.model,
            num_devices=self._mesh.get_num_devices(),
            tt_data_parallel=self.lanes,
            max_model_len=self.model_config.max_model_len,
            max_num_seqs=self.sequences // self.lanes,
        )
        tokens = tokens_all_users(self.model_class, serving)
        blocks = kv_blocks(tokens, self.cache_config.block_size, self.sequences // self.lanes, self._window(spec))
        published = publish(blocks, bytes_per_block(self.vllm_config, spec))
        self.cache_config.num_gpu_blocks_override = published.num_gpu_blocks_override
        return published.available_bytes

    def _window(self, spec: dict[str, KVCacheSpec]) -> int | None:
        """Window that adds to the pool: a class whose groups are hybrid keeps more than one window a user for a time.

        Source: tt-metal contract 1.3.
        """
        return sliding_window(spec) if getattr(self.model_class, "_HYBRID_KV_CACHE_GROUPS_ENABLED", False) else None

    def update_max_model_len(self, max_model_len: int) -> None:
        """The planner fitted `--max-model-len -1` to the pool."""
        self.model_config.max_model_len = max_model_len

    def initialize_cache(self, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        self.cache_config.num_gpu_blocks = num_gpu_blocks

    @of_start
    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        layout, adapter = cache_layout(self.vllm_config, kv_cache_config), self._adapter
        adapter.kv_cache = kv.allocate(adapter.model, layout, self._mesh.get_num_devices() // self.lanes)
        adapter.layer_groups = layout.layer_groups
        block_size = min(group.block_size for group in layout.groups)
        width = min(-(-self.model_config.max_model_len // block_size), layout.num_blocks)
        self.pages = PageTables(
            [PageTable(self.rows, width, layout.num_blocks) for _ in layout.groups],
            [group.window for group in layout.groups],
            block_size,
        )
        self.loaded.runner = self._build_runner()

    def _build_runner(self) -> Runner:
        vocab_size = self.model_config.get_vocab_size()
        device_sampler = DeviceSampler(
            mode=Mode.of(self.options.sample_on_device_mode),
            supports_penalties=self.capabilities.supports_device_penalties,
            max_top_k=self.capabilities.max_device_top_k,
            devices_per_lane=self._mesh.get_num_devices() // self.lanes,
            logprobs=self.model_config.logprobs_mode == "raw_logprobs",
            top_logprobs=returns_top_logprobs(self.model_config.hf_config.model_type, self.capabilities.declared),
            seeded_on_host=self.options.seeded_on_host,
            always_compat=self.options.always_compat_sampling,
        )
        host = HostSampling(self.vllm_config, self.rows, vocab_size, always_compat=self.options.always_compat_sampling)
        self.translator = Translator()
        resident = self.capabilities.supports_async_decode and self.trace.decode
        blocks = block_output(self.vllm_config)
        build = partial(BlockRunner, blocks) if blocks.blocks else Runner
        self._adapter.prefill_width = blocks.of_prefill
        return build(
            RunnerConfig(
                overlap=bool(self.scheduler_config.async_scheduling) and resident,
                longest=self.model_config.max_model_len,
                on_block=self.metrics.count_block,
                alignment=self._alignment,
                scheduler_ends_failed=getattr(self.scheduler_config.get_scheduler_cls(), "ends_failed_requests", False),
            ),
            self._adapter,
            RowTable(self.rows, self.lanes),
            self.pages,
            RowSamplers(self.rows, vocab_size, device_sampler, host, self.loaded.tally),
            ReloadPlanner(resident_inputs=resident),
            self.loaded.log,
            TimeLimit(self.options.step_time_limit_s, enter_thread=lambda: torch.set_grad_enabled(False)),
        )

    @of_start
    def compile_or_warm_up_model(self) -> CompilationTimes:
        if not self.options.enable_model_warmup:
            logger.info("Skipping model warmup")
            return CompilationTimes(language_model=0.0, encoder=0.0)
        mode = Mode.of(self.options.sample_on_device_mode)
        plan = WarmupPlan(sample_prefill=mode is Mode.ALL, sample_decode=mode is not Mode.OFF, pages=self.pages.width)
        return CompilationTimes(language_model=warm_up(self._adapter, plan), encoder=0.0)

    # Steps

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        result = self._running.execute(self.translator.step(scheduler_output))
        return None if result is None else runner_output(result)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> AsyncOutput | None:
        runner = self._running
        flight = runner.sample(grammar_mask(grammar_output, runner.row_of))
        if flight is None:
            # The step's execute_model failed; vLLM raises that error when it sees None.
            return None
        return AsyncOutput(flight)

    @property
    def _running(self) -> Runner:
        if self.loaded.runner is None:
            raise RuntimeError("the worker was asked for a step before its KV cache was initialised")
        return self.loaded.runner

    # The rest of what an engine can ask

    def get_supported_tasks(self) -> tuple[SupportedTask, ...]:
        return ("generate",)

    def take_draft_token_ids(self) -> None:
        return None

    def execute_dummy_batch(self) -> None:
        """Ranks of standard data parallelism are independent: there is no collective to keep company."""

    def reset_encoder_cache(self) -> None:
        return

    def synchronize_device(self) -> None:
        if self.loaded.runner is not None:
            self.loaded.runner.drain()

    def profile(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("profiling through the engine is not supported: use tt-metal's device profiler")

    def sleep(self, level: int = 1) -> None:
        raise NotImplementedError("sleep mode is not supported on Tenstorrent: the mesh keeps its traces")

    def wake_up(self, tags: list[str] | None = None) -> None:
        raise NotImplementedError("sleep mode is not supported on Tenstorrent: the mesh keeps its traces")

    def add_lora(self, lora_request: Any) -> bool:
        return False

    def remove_lora(self, lora_id: int) -> bool:
        return False

    def pin_lora(self, lora_id: int) -> bool:
        return False

    def list_loras(self) -> set[int]:
        return set()

    def check_health(self) -> None:
        if self._session is None or not self._session.is_open:
            raise RuntimeError("the device mesh is closed")
        if self.loaded.runner is not None and self.loaded.runner.failure is not None:
            raise self.loaded.runner.failure

    # End

    def shutdown(self) -> None:
        """Release the model, close the mesh. Safe to call twice."""
        if self._session is not None:
            self._session.close()
