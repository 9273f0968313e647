"""Drop-in name: TTScheduler lives in tt_scheduler.vllm.scheduler."""

from tt_scheduler.vllm.scheduler import TTScheduler

__all__ = ["TTScheduler"]
