"""vLLM adapters of tt-worker. The only folder of this package that imports vllm."""
