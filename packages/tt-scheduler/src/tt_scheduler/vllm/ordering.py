"""The waiting queue of vLLM's scheduler in the order of admission of a latency target."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.request import RequestStatus

from tt_scheduler.admission import WaitingPrompt, admission_order

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler


def order_waiting(scheduler: Scheduler) -> None:
    """Sort the waiting requests. O(waiting), and only called while a latency target limits a pass.

    Only the queue of a first-come-first-served scheduler is touched: a priority is the operator's word.
    """
    queue = scheduler.waiting
    if len(queue) < 2 or not isinstance(queue, FCFSRequestQueue):
        return
    now = time.time()
    waiting = list(queue)
    prompts = [WaitingPrompt(r.num_tokens, now - r.arrival_time, r.status is RequestStatus.PREEMPTED) for r in waiting]
    order = admission_order(prompts)
    if order != list(range(len(order))):
        queue.clear()
        queue.extend(waiting[index] for index in order)
