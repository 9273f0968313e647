"""The weights of Gemma 3's vision tower, read from safetensors files."""

from torch import Tensor

from tt_hostmesh.gemma.tower import Centred, TowerWeights, VisionConfig, VisionLayer
from tt_hostmesh.llama.linear import Linear
from tt_hostmesh.llama.weights import Checkpoint

PROJECTOR = "multi_modal_projector."


class TowerCheckpoint:
    """Reads the tower of one checkpoint. Older ones name it `vision_tower.vision_model`."""

    def __init__(self, config: VisionConfig, source: Checkpoint) -> None:
        self._config, self._source = config, source
        older = "vision_tower.vision_model.post_layernorm.weight" in source
        self._prefix = "vision_tower.vision_model." if older else "vision_tower."

    def weights(self) -> TowerWeights:
        """All weights in float32. Raises KeyError for a tensor that is missing, ValueError for a wrong shape."""
        config, source = self._config, self._source
        width, values = config.hidden_size, 3 * config.patch**2
        patch = source.read_flat(f"{self._prefix}embeddings.patch_embedding.weight", width, values)
        project = source.read(f"{PROJECTOR}mm_input_projection_weight", width, config.out_size)
        return TowerWeights(
            patch=Linear(patch, self._read("embeddings.patch_embedding.bias", width)),
            positions=self._read("embeddings.position_embedding.weight", config.side**2, width),
            layers=tuple(self._layer(f"encoder.layers.{index}.") for index in range(config.num_layers)),
            norm=self._centred("post_layernorm"),
            soft_norm=1 + source.read(f"{PROJECTOR}mm_soft_emb_norm.weight", width),
            project=Linear(project.T.contiguous()),
        )

    def _layer(self, prefix: str) -> VisionLayer:
        width, inner = self._config.hidden_size, self._config.intermediate_size
        return VisionLayer(
            norm1=self._centred(f"{prefix}layer_norm1"),
            query=self._linear(f"{prefix}self_attn.q_proj", width, width),
            key=self._linear(f"{prefix}self_attn.k_proj", width, width),
            value=self._linear(f"{prefix}self_attn.v_proj", width, width),
            output=self._linear(f"{prefix}self_attn.out_proj", width, width),
            norm2=self._centred(f"{prefix}layer_norm2"),
            first=self._linear(f"{prefix}mlp.fc1", inner, width),
            second=self._linear(f"{prefix}mlp.fc2", width, inner),
        )

    def _read(self, name: str, *shape: int) -> Tensor:
        return self._source.read(self._prefix + name, *shape)

    def _linear(self, name: str, rows: int, columns: int) -> Linear:
        return Linear(self._read(f"{name}.weight", rows, columns), self._read(f"{name}.bias", rows))

    def _centred(self, name: str) -> Centred:
        width = self._config.hidden_size
        return Centred(self._read(f"{name}.weight", width), self._read(f"{name}.bias", width))
