"""Rows, step inputs, model adapter and overlapped decode for Tenstorrent model classes.

The names here need numpy only. `tt_worker.adapter`, `tt_worker.outcome` and `tt_worker.runner` call models and need
torch;
`tt_worker.vllm` is the adapter to vLLM.
"""

from tt_worker.inflight import InFlight, InFlightQueue
from tt_worker.pages import PageTable, PageTableError
from tt_worker.reload import DecodeSituation, ReloadPlan, ReloadPlanner
from tt_worker.request import RequestState
from tt_worker.rows import RowError, RowTable
from tt_worker.step import Admission, StepRequest, StepResult

__all__ = [
    "Admission",
    "DecodeSituation",
    "InFlight",
    "InFlightQueue",
    "PageTable",
    "PageTableError",
    "ReloadPlan",
    "ReloadPlanner",
    "RequestState",
    "RowError",
    "RowTable",
    "StepRequest",
    "StepResult",
]
