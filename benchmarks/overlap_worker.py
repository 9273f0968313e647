"""A worker that does nothing: what is left is vLLM's own cost. Used by overlap.py."""

from typing import Any

from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

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
