"""Gemma as the plugin registers it."""

from typing import Any, ClassVar

from tt_hostmesh.gemma.decoder import GemmaDecoder
from tt_hostmesh.gemma.forward import SeeingGemmaCompute
from tt_hostmesh.gemma.placeholder import PicturePlaceholder
from tt_hostmesh.gemma.tower import VisionConfig, VisionTower
from tt_hostmesh.gemma.tower_weights import TowerCheckpoint
from tt_hostmesh.gemma.weights import GemmaCheckpoint
from tt_hostmesh.layers.generator import LayeredGenerator
from tt_hostmesh.layers.kept import Kept
from tt_hostmesh.llama.weights import Checkpoint


class Gemma3ForCausalLM(LayeredGenerator):
    """Gemma 3 checkpoints from a local Hugging Face directory, float32, any lane count the mesh allows.

    More than tt-metal's class can: it takes chunks and cached prefixes. Text only.
    """

    release: ClassVar[int] = 3

    @classmethod
    def decoder(cls, config: Any, source: Checkpoint, max_seq_len: int) -> GemmaDecoder:
        """See LayeredGenerator."""
        return GemmaDecoder(GemmaCheckpoint(cls.release, config, source, max_seq_len).weights())


class SeeingGemma3(Gemma3ForCausalLM):
    """Gemma 3 checkpoints with a vision tower: text and images, without what vLLM wants of it (see tt_hostmesh.vllm).

    More than tt-metal's class can: it takes images in chunks and in cached prefixes.
    """

    @classmethod
    def compute(cls, hf_config: Any, source: Checkpoint, max_seq_len: int) -> SeeingGemmaCompute:
        """See LayeredGenerator."""
        vision = VisionConfig.of(hf_config)
        decoder = cls.decoder(hf_config.get_text_config(), source, max_seq_len)
        tower = VisionTower(vision, TowerCheckpoint(vision, source).weights())
        side = vision.side * vision.patch
        placeholder = PicturePlaceholder(hf_config.image_token_id, hf_config.mm_tokens_per_image, side)
        return SeeingGemmaCompute(decoder, tower, placeholder)


class Gemma4ForCausalLM(Gemma3ForCausalLM):
    """Dense Gemma 4 checkpoints without embeddings by layer, text only, otherwise as Gemma 3.

    As tt-metal's class has it by default: KV cache groups are off. Layers differ in heads and head size, keep all their
    blocks, and have one page table; no cached prefixes.
    """

    release: ClassVar[int] = 4
    _HYBRID_KV_CACHE_GROUPS_ENABLED: ClassVar[bool] = False
    model_capabilities: ClassVar[dict[str, Any]] = {
        "supports_async_decode": True,
        "supports_sample_on_device": True,
        "supports_chunked_prefill": True,
    }

    @classmethod
    def kept(cls, config: Any) -> list[Kept]:
        """Every layer keeps all its blocks, each in its own shape."""
        layers = [config.per_layer_config[index] for index in range(len(config.layer_types))]
        return [Kept(layer.num_key_value_heads, layer.head_dim) for layer in layers]
