"""Gemma 3 as the plugin registers it."""

from typing import Any

from tt_hostmesh.gemma3.decoder import Gemma3Decoder
from tt_hostmesh.layers.generator import LayeredGenerator
from tt_hostmesh.llama.weights import Checkpoint


class Gemma3ForCausalLM(LayeredGenerator):
    """Gemma 3 checkpoints from a local Hugging Face directory, float32, any lane count the mesh allows.

    More than tt-metal's class can: it takes chunks and cached prefixes. Text only: of a checkpoint with a vision tower
    (Gemma3ForConditionalGeneration) the language model is served.
    """

    @classmethod
    def decoder(cls, config: Any, source: Checkpoint, max_seq_len: int) -> Gemma3Decoder:
        """See LayeredGenerator."""
        return Gemma3Decoder(config, source, max_seq_len)
