"""Where each row of a batch is sampled, device or host, and why. The core needs the standard library only."""

from tt_sampling.device import DeviceParams
from tt_sampling.parameters import RowSampling, TTSamplingParams
from tt_sampling.placement import DeviceSampler, Mode, Phase, Placement, PlacementTable, place, row_reasons
from tt_sampling.reasons import Reason, ReasonTally
from tt_sampling.result import holds_logits
from tt_sampling.seeds import Streams, draw_bits, uniform

__all__ = [
    "DeviceParams",
    "DeviceSampler",
    "Mode",
    "Phase",
    "Placement",
    "PlacementTable",
    "Reason",
    "ReasonTally",
    "RowSampling",
    "Streams",
    "TTSamplingParams",
    "draw_bits",
    "holds_logits",
    "place",
    "row_reasons",
    "uniform",
]
