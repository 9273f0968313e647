"""vLLM's scheduler output as a step in plain values, and a step's result as vLLM's runner output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, AsyncModelRunnerOutput, ModelRunnerOutput

from tt_worker.inflight import InFlight
from tt_worker.media import KEYWORDS, Image
from tt_worker.sampling import GrammarMask
from tt_worker.step import Admission, StepRequest, StepResult
from tt_worker.vllm import _compat

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm.multimodal.inputs import MultiModalFeatureSpec
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.sched.output import CachedRequestData, GrammarOutput, NewRequestData, SchedulerOutput


NO_BLOCKS: Mapping[str, Sequence[Sequence[int]]] = {}


@dataclass(frozen=True, slots=True)
class _Known:
    """What a resumed request's message does not repeat."""

    prompt: list[int]
    params: SamplingParams
    images: tuple[Image, ...] = ()


class Translator:
    """Remembers each request's prompt and parameters until it finishes: vLLM sends them once."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def step(self, output: SchedulerOutput) -> StepRequest:
        if copies := _compat.block_copies(output):
            raise NotImplementedError(
                f"the engine asks for {len(copies)} KV block copies: tt-metal contract 1.3 has no call for it"
            )
        lane_of = getattr(output, "lane_of", {})
        finished = output.finished_req_ids
        for request_id in finished:
            self._known.pop(request_id, None)
        admissions = [self._new(request, lane_of) for request in output.scheduled_new_reqs]
        cached = output.scheduled_cached_reqs
        if cached.resumed_req_ids:
            admissions += self._resumed(cached, lane_of)
        resumed = cached.resumed_req_ids
        return StepRequest(
            leaving=[*finished, *(output.preempted_req_ids or ())],
            admissions=admissions,
            computed=dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)),
            grown={
                request_id: blocks
                for request_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True)
                if blocks is not None and request_id not in resumed
            }
            if any(cached.new_block_ids)
            else NO_BLOCKS,
            scheduled=output.num_scheduled_tokens,
        )

    def _new(self, request: NewRequestData, lane_of: dict[str, int]) -> Admission:
        if request.prompt_token_ids is None or request.sampling_params is None:
            raise NotImplementedError(f"request {request.req_id!r} has no prompt tokens: only token prompts are served")
        known = _Known(request.prompt_token_ids, request.sampling_params, tuple(map(_image, request.mm_features)))
        self._known[request.req_id] = known
        return self._admission(
            request.req_id,
            known,
            _compat.output_of_admission(request),
            request.num_computed_tokens,
            request.block_ids,
            lane_of,
        )

    def _resumed(self, cached: CachedRequestData, lane_of: dict[str, int]) -> list[Admission]:
        admissions: list[Admission] = []
        for i, request_id in enumerate(cached.req_ids):
            if request_id not in cached.resumed_req_ids:
                continue
            known = self._known[request_id]
            blocks = cached.new_block_ids[i]
            if blocks is None:
                raise ValueError(f"resumed request {request_id!r} came without blocks")
            output = cached.all_token_ids[request_id][len(known.prompt) :]
            admissions.append(
                self._admission(request_id, known, output, cached.num_computed_tokens[i], blocks, lane_of)
            )
        return admissions

    def _admission(
        self,
        request_id: str,
        known: _Known,
        output: list[int],
        computed: int,
        blocks: Sequence[Sequence[int]],
        lane_of: dict[str, int],
    ) -> Admission:
        return Admission(
            request_id=request_id,
            prompt=known.prompt,
            output=output,
            computed=computed,
            block_ids=blocks,
            params=known.params,
            lane=lane_of.get(request_id, 0),
            ends_at=None if known.params.max_tokens is None else len(known.prompt) + known.params.max_tokens,
            images=known.images,
        )


def _image(feature: MultiModalFeatureSpec) -> Image:
    """Raises NotImplementedError for other media, and for an image that came without its pixels: the platform refuses
    the former, and TTScheduler sends the latter."""
    if feature.modality != "image" or feature.data is None:
        raise NotImplementedError(f"{feature.modality} input {feature.identifier!r} cannot be handed to the model")
    position = feature.mm_position
    values = {name: feature.data[name].data for name in KEYWORDS if name in feature.data}
    return Image(position.offset, position.offset + position.length, values)


@dataclass
class TTModelRunnerOutput(ModelRunnerOutput):
    """vLLM's output, and requests that must end with an error: id -> why. TTScheduler ends them.

    vLLM has no field for a worker that cannot serve one request of a batch.
    """

    failed_requests: dict[str, str] = field(default_factory=dict)


def grammar_mask(grammar: GrammarOutput | None, row_of: Callable[[str], int]) -> GrammarMask | None:
    """The packed masks with the row that each belongs to."""
    if grammar is None:
        return None
    rows = {row_of(request_id): i for i, request_id in enumerate(grammar.structured_output_request_ids)}
    return grammar.grammar_bitmask, rows


def runner_output(result: StepResult) -> ModelRunnerOutput:
    """Built by keywords from fields that every supported release has."""
    if not result.request_ids:
        return EMPTY_MODEL_RUNNER_OUTPUT
    output = TTModelRunnerOutput(
        req_ids=list(result.request_ids),
        req_id_to_index=dict(zip(result.request_ids, range(len(result.request_ids)), strict=True)),
        sampled_token_ids=list(result.token_ids),
        logprobs=result.logprobs,
        prompt_logprobs_dict={},
        pooler_output=None,
    )
    output.failed_requests = dict(result.failed)
    return output


class AsyncOutput(AsyncModelRunnerOutput):
    """The output of a step that is still on the device."""

    def __init__(self, flight: InFlight[StepResult]) -> None:
        self._flight = flight

    def get_output(self) -> ModelRunnerOutput:
        return runner_output(self._flight.result())

    def get_kv_connector_output(self) -> Any:
        """Abstract since 0.33. There is no KV connector."""
        return None
