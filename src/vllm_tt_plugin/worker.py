"""Drop-in name: TTWorker lives in tt_worker.vllm.worker."""

from tt_worker.vllm.worker import TTWorker

__all__ = ["TTWorker"]
