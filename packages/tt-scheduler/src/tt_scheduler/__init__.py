"""Prefill/decode phases, decode interleave and lanes for accelerators that replay traces.

The core needs the standard library only. `tt_scheduler.vllm` holds the adapters for vLLM,
`tt_scheduler.simulate` a simulator that runs the same policy objects.
"""

from tt_scheduler.admission import WaitingPrompt, admission_order
from tt_scheduler.interleave import Interleave, InterleaveOptions
from tt_scheduler.lanes import LaneLoad, lane_permits, least_loaded
from tt_scheduler.phase import Demand, Phase
from tt_scheduler.plan import Outcome, Pass, Step
from tt_scheduler.policy import PhasePolicy
from tt_scheduler.rows import LaneRows, NoFreeRow
from tt_scheduler.target import Chunking, LatencyTarget

__all__ = [
    "Chunking",
    "Demand",
    "Interleave",
    "InterleaveOptions",
    "LaneLoad",
    "LaneRows",
    "LatencyTarget",
    "NoFreeRow",
    "Outcome",
    "Pass",
    "Phase",
    "PhasePolicy",
    "Step",
    "WaitingPrompt",
    "admission_order",
    "lane_permits",
    "least_loaded",
]
