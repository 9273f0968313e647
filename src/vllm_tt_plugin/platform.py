"""Drop-in name: TTPlatform lives in tt_platform.vllm.platform."""

from tt_platform.vllm.platform import TTPlatform

__all__ = ["TTPlatform"]
