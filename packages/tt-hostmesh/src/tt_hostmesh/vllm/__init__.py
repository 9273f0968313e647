"""The room that may import vLLM: models whose inputs vLLM has to process, images before all."""
