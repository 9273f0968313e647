"""The five points of ``vllm-tt audit``: each takes what was found and gives a verdict with its evidence."""
