"""Tenstorrent backend plugin for vLLM: entry points and drop-in module names."""
