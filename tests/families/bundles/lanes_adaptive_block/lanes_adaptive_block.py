"""The adaptive block output model, as one program for all lanes."""

from tt_hostmesh.blocks.generator import AdaptiveBlockLlamaForCausalLM as Model

__all__ = ["Model"]
