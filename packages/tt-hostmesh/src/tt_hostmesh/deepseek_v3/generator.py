"""DeepSeek V3 as the plugin registers it."""

from typing import Any, ClassVar

from tt_hostmesh.deepseek_v3.decoder import DeepseekV3Decoder
from tt_hostmesh.layers.generator import LayeredGenerator
from tt_hostmesh.llama.weights import Checkpoint


class DeepseekV3ForCausalLM(LayeredGenerator):
    """Unquantised DeepSeek V3 checkpoints from a local Hugging Face directory, float32, any lane count the mesh allows.

    As tt-metal's class has it: whole prompts, no cached prefixes, no overlapped decode, and a prefill that is sampled
    on the host answers the logits of all positions.
    """

    model_capabilities: ClassVar[dict[str, Any]] = {"supports_sample_on_device": True}
    all_positions: ClassVar[bool] = True
    _HYBRID_KV_CACHE_GROUPS_ENABLED: ClassVar[bool] = False

    @classmethod
    def decoder(cls, config: Any, source: Checkpoint, max_seq_len: int) -> DeepseekV3Decoder:
        """See LayeredGenerator."""
        return DeepseekV3Decoder(config, source, max_seq_len)

    @classmethod
    def get_kv_cache_spec(cls, vllm_config: Any) -> dict[str, Any] | None:
        """Nothing: all layers keep a latent of one size, which vLLM knows."""
        return None
