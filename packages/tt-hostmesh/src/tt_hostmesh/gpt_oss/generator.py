"""GPT-OSS as the plugin registers it."""

from typing import Any, ClassVar

from tt_hostmesh.gpt_oss.decoder import GptOssDecoder
from tt_hostmesh.layers.generator import LayeredGenerator
from tt_hostmesh.llama.weights import Checkpoint


class GptOssForCausalLM(LayeredGenerator):
    """Unquantised GPT-OSS checkpoints from a local Hugging Face directory, float32, any lane count the mesh allows.

    As tt-metal's class has it: whole prompts, no cached prefixes, and with device logprobs the 32 best of each row
    (contract 1.7).
    """

    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_async_decode": True,
        "supports_sample_on_device": True,
    }
    top_logprobs: ClassVar[int] = 32

    @classmethod
    def decoder(cls, config: Any, source: Checkpoint, max_seq_len: int) -> GptOssDecoder:
        """See LayeredGenerator."""
        return GptOssDecoder(config, source, max_seq_len)
