"""vLLM adapters of tt-scheduler. The only folder of this package that imports vllm."""
