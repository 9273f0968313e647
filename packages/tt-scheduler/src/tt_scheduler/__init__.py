"""Prefill/decode phases, decode interleave and lanes for accelerators that replay traces.

The core needs the standard library only. `tt_scheduler.vllm` holds the adapters for vLLM.
"""

from tt_scheduler.interleave import Interleave, InterleaveOptions
from tt_scheduler.phase import Demand, Phase
from tt_scheduler.policy import PhasePolicy

__all__ = ["Demand", "Interleave", "InterleaveOptions", "Phase", "PhasePolicy"]
