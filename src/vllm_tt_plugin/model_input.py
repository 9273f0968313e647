"""Drop-in name: TTSamplingParams lives in tt_sampling.parameters."""

from tt_sampling.parameters import TTSamplingParams

__all__ = ["TTSamplingParams"]
