"""The part of vLLM that we touch: derived from our sources, read from vLLM's, compared between releases."""
