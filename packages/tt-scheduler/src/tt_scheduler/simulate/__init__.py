"""Simulator: the phase policy on a model of a device, for questions that take hours on a real one.

    python -m tt_scheduler.simulate --help

Needs the standard library; PNG plots need matplotlib (the extra `plots`).
"""

from tt_scheduler.simulate.cost import PRESETS, CostModel
from tt_scheduler.simulate.engine import Engine
from tt_scheduler.simulate.lane import EngineSize, Lane, Scheduled, SimRequest
from tt_scheduler.simulate.results import Results, Target
from tt_scheduler.simulate.run import Run, Served, Simulation, StepEvent
from tt_scheduler.simulate.scenario import Scenario
from tt_scheduler.simulate.workload import Arrival, poisson, read_trace

__all__ = [
    "PRESETS",
    "Arrival",
    "CostModel",
    "Engine",
    "EngineSize",
    "Lane",
    "Results",
    "Run",
    "Scenario",
    "Scheduled",
    "Served",
    "SimRequest",
    "Simulation",
    "StepEvent",
    "Target",
    "poisson",
    "read_trace",
]
