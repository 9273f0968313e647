"""The host sampler: torch only, no vLLM. Importing `tt_sampling` itself does not import this."""
