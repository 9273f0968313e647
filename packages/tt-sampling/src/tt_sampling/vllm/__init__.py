"""The adapter to vLLM: translates its objects and decides nothing."""
