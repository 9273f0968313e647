"""A worker that does nothing, and a model that takes no time at all: the ends of a scale. Used by overlap.py."""

from typing import Any

import torch
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from tt_hostmesh.synthetic.generator import SyntheticForCausalLM
from tt_worker.vllm.worker import TTWorker


class DoNothingWorker(TTWorker):
    """Starts like the real one, answers every scheduled request with token 1, and never calls the model."""

    _ids: list[str]

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput | None:
        self._ids = list(scheduler_output.num_scheduled_tokens)
        return None if self._ids else EMPTY_MODEL_RUNNER_OUTPUT

    def sample_tokens(self, grammar_output: Any) -> ModelRunnerOutput:
        return ModelRunnerOutput(
            req_ids=self._ids,
            req_id_to_index={name: i for i, name in enumerate(self._ids)},
            sampled_token_ids=[[1] for _ in self._ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=None,
        )


class InstantModel(SyntheticForCausalLM):
    """Every decode step is there at once: what a software device computes in the engine's process costs nothing."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._tokens = torch.ones(self._placement.max_batch_size, dtype=torch.int32)

    def decode_forward(self, **keywords: Any) -> Any:
        return object()

    def read_decode_output(self, payload: Any, async_read: bool = False) -> Any:
        return payload, []

    def process_decode_output_host(self, payload: Any, is_tokens: bool = True) -> Any:
        return self._tokens, None
