"""Drop-in name: TTLaneCoordinator lives in tt_scheduler.vllm.lanes."""

from tt_scheduler.vllm.lanes import TTLaneCoordinator

__all__ = ["TTLaneCoordinator"]
