"""GPT-OSS: experts, attention sinks, a sliding window in every other layer."""
