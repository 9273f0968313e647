"""What of a worker lives on the mesh."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tt_sampling.reasons import ReasonTally
from tt_worker.steplog import StepLog

if TYPE_CHECKING:
    from tt_worker.adapter import ModelAdapter
    from tt_worker.pooling import PoolingModel
    from tt_worker.runner import Runner

logger = logging.getLogger("vllm.tt.worker")


@dataclass(slots=True)
class Loaded:
    """The model and who calls it, as far as a start has come, and the records of their steps.

    It knows nothing of its worker: the mesh, which calls `release` before it is closed, may outlive that one.
    """

    log: StepLog
    tally: ReasonTally
    model: Any = None
    adapter: ModelAdapter | None = None
    runner: Runner | None = None
    pooling: PoolingModel | None = None

    def release(self) -> None:
        """Nothing of the model outlives the mesh."""
        if self.runner is not None:
            self.runner.close()
        self.runner = self.adapter = self.pooling = self.model = None
        counts = dict(self.log.counts)
        host_steps = {reason.name: steps for reason, steps in self.tally.steps.most_common()}
        self.log.event("model released", steps=counts, host_steps=host_steps)
        logger.info("TT worker ran %s", ", ".join(f"{n} {phase} steps" for phase, n in counts.items()) or "no step")
        logger.info("%s", self.tally.summary())
        self.log.close()
