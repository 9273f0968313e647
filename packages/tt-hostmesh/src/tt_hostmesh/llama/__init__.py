"""The reference model: the Llama architecture in torch, behind tt-metal's calls."""
