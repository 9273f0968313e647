"""vLLM's scheduler, with images that stay whole and reach the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from tt_scheduler.images import whole_images

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class WholeImageScheduler(AsyncScheduler):
    """With `disable_chunked_mm_input` no chunk ends inside an image, in any release."""

    def _try_schedule_encoder_inputs(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int, *args: Any, **kwargs: Any
    ) -> Any:
        """vLLM's, asked for fewer tokens: before 0.33 it splits an image at which the chunk begins, and in all releases
        one in whose middle a cached prefix ends."""
        if self.scheduler_config.disable_chunked_mm_input:
            positions = [feature.mm_position for feature in request.mm_features]
            spans = [(position.offset, position.offset + position.length) for position in positions]
            num_new_tokens = whole_images(spans, num_computed_tokens, num_new_tokens)
        return super()._try_schedule_encoder_inputs(request, num_computed_tokens, num_new_tokens, *args, **kwargs)


def restore_images(requests: Mapping[str, Request], output: SchedulerOutput) -> None:
    """Since 0.29 vLLM leaves the pixels of images in a cached prefix out. A Tenstorrent class is given all tokens, and
    all images, from position 0 on, and a preempted request may have to compute them again."""
    for new in output.scheduled_new_reqs:
        if new.mm_features:
            new.mm_features = requests[new.req_id].mm_features
