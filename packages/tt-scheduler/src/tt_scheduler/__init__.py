"""Prefill/decode phases, decode interleave and lanes for trace-replaying accelerators."""
