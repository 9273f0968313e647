"""What a pass that scheduled nothing has taken out of vLLM's scheduler, and must not be lost."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput


def carry_over(dropped: SchedulerOutput, kept: SchedulerOutput) -> SchedulerOutput:
    """Move the drained state of `dropped` (no token scheduled) into `kept` and return `kept`.

    Finished and preempted ids, freed encoder hashes, blocks to zero and block copies are handed out once;
    the per-request fields of `dropped` are empty by definition. Generic over the fields, so new ones are carried too.
    """
    for field in fields(dropped):
        ours, theirs = getattr(kept, field.name), getattr(dropped, field.name)
        if isinstance(theirs, set) and theirs:
            setattr(kept, field.name, theirs | (ours or set()))
        elif isinstance(theirs, list) and theirs and field.name != "num_common_prefix_blocks":
            setattr(kept, field.name, theirs + (ours or []))
        elif isinstance(theirs, dict) and theirs:
            setattr(kept, field.name, {**theirs, **(ours or {})})
        elif ours is None and theirs is not None:
            setattr(kept, field.name, theirs)
    return kept
