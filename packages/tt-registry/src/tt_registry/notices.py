"""Warnings that are said once a process, however often the registry is read."""

from __future__ import annotations

import functools
import logging

logger = logging.getLogger("vllm.tt.registry")


@functools.cache
def warn_once(sentence: str) -> None:
    """Log a warning the first time that this sentence comes up."""
    logger.warning("%s", sentence)
