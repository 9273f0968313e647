"""TTPoolingWorker: the worker of a model that embeds prompts and generates nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

from tt_worker.pooling import PoolingModel, Wanted
from tt_worker.vllm.worker import TTWorker, of_start

if TYPE_CHECKING:
    from vllm.pooling_params import PoolingParams
    from vllm.tasks import SupportedTask
    from vllm.v1.core.sched.output import GrammarOutput, NewRequestData, SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec


class TTPoolingWorker(TTWorker):
    """A step is one batch of whole prompts, answered at once. There is no KV cache and nothing to warm up."""

    @of_start
    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        self.loaded.pooling = PoolingModel(self._build_model())

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        return {}

    def determine_available_memory(self) -> int:
        return 0

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        """Nothing is cached."""

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        requests = scheduler_output.scheduled_new_reqs
        if not requests:
            return EMPTY_MODEL_RUNNER_OUTPUT
        prompts = [_whole_prompt(request, scheduler_output) for request in requests]
        if self.loaded.pooling is None:
            raise RuntimeError("the worker was asked for a step before its model was loaded")
        embeddings = self.loaded.pooling.embed(prompts)
        self.loaded.log.step("prefill", requests=len(prompts), tokens=sum(map(len, prompts)), sampled=None)
        return ModelRunnerOutput(
            req_ids=[request.req_id for request in requests],
            req_id_to_index={request.req_id: i for i, request in enumerate(requests)},
            sampled_token_ids=[],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[
                _wanted(request.pooling_params).shaped(vector)
                for request, vector in zip(requests, embeddings, strict=True)
            ],
        )

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> Any:
        """Nothing is sampled."""
        return None

    def get_supported_tasks(self) -> tuple[SupportedTask, ...]:
        return ("embed",)


def _whole_prompt(request: NewRequestData, output: SchedulerOutput) -> list[int]:
    prompt = request.prompt_token_ids
    if prompt is None or output.num_scheduled_tokens[request.req_id] != len(prompt):
        raise NotImplementedError(
            f"request {request.req_id!r} is not a whole prompt of tokens: only those are embedded"
        )
    return prompt


def _wanted(params: PoolingParams | None) -> Wanted:
    if params is None:
        return Wanted()
    return Wanted(params.use_activation is not False, params.dimensions)
