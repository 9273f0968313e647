"""The vLLM adapter: vLLM's objects become plain values for the core, and its answers go back. It decides nothing."""
