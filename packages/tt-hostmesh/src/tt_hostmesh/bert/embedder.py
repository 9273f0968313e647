"""`BertModel` as the plugin registers it (tt-metal contract 1.13)."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from tt_hostmesh.bert.config import BertConfig
from tt_hostmesh.bert.forward import BertCompute
from tt_hostmesh.errors import ContractError, HostMeshError
from tt_hostmesh.llama.generator import OPTIMIZATIONS
from tt_hostmesh.mesh import HostMesh
from tt_hostmesh.strict.breach import strict_wanted


class BertModel:
    """Answers `forward` and nothing else: no cache, no warm-up, no tokens."""

    is_pooling_model = True  # vLLM's mark
    model_capabilities: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, compute: Any = None, mesh: Any = None, rows: int = 0, longest: int = 0, *, vllm_config: object = None
    ) -> None:
        """For `initialize_vllm_model`; the keyword makes vLLM take the class for a model."""
        if compute is None or vllm_config is not None:
            raise NotImplementedError(f"{type(self).__name__} is built by initialize_vllm_model only")
        self._compute, self._mesh, self._rows, self._longest = compute, mesh, rows, longest
        self._strict = strict_wanted()

    @classmethod
    def initialize_vllm_model(
        cls,
        hf_config: Any,
        mesh_device: Any,
        max_batch_size: int,
        *,
        max_seq_len: int,
        tt_data_parallel: int = 1,
        optimizations: str | None = None,
    ) -> "BertModel":
        """Load the checkpoint in `hf_config._name_or_path`. Raises ValueError, KeyError, HostMeshError."""
        if optimizations not in OPTIMIZATIONS or tt_data_parallel != 1:
            raise ValueError(f"optimizations={optimizations!r}, tt_data_parallel={tt_data_parallel} are not served")
        if not isinstance(mesh_device, HostMesh):
            raise HostMeshError(f"{cls.__name__} runs on the software mesh only, got {type(mesh_device).__name__}")
        config, directory = BertConfig.of(hf_config), hf_config._name_or_path
        compute = mesh_device.submit(lambda: BertCompute(directory, config), "load weights").result()
        return cls(compute, mesh_device, max_batch_size, min(max_seq_len, config.max_positions))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """float32 [n, hidden] of input_ids int64 [n, S], padded behind each row's end; attention_mask float32 [n, S],
        1 at a token. Blocks. Raises ContractError for inputs that break clause 1.13."""
        if self._strict:
            self._check(input_ids, attention_mask)
        tokens, mask = input_ids.clone(), attention_mask.clone()
        return self._mesh.submit(lambda: self._compute.embed(tokens, mask), "embed").result()

    def embed_input_ids(self, input_ids: object) -> object:
        """vLLM's model inspection wants this name; nobody calls it."""
        raise NotImplementedError("this class is driven by the TT worker, through forward")

    def _check(self, ids: Tensor, mask: Tensor) -> None:
        def require(holds: object, text: str) -> None:
            if not holds:
                raise ContractError(f"{type(self).__name__}.forward", "1.13", text)

        require(ids.dtype == torch.int64 and ids.dim() == 2, f"input_ids are {ids.dtype} {list(ids.shape)}")
        require(mask.dtype == torch.float32 and mask.shape == ids.shape, f"attention_mask is {mask.dtype}")
        rows, width = ids.shape
        require(0 < rows <= self._rows, f"{rows} rows in a model of max_batch_size {self._rows}")
        require(0 < width <= self._longest, f"{width} positions, the longest sequence has {self._longest}")
        inside = int(ids.min()) >= 0 and int(ids.max()) < self._compute.config.vocab_size
        require(inside, "token ids leave the vocabulary")
        lengths = mask.sum(1, keepdim=True)
        require(torch.equal(mask, (torch.arange(width) < lengths).float()), "attention_mask has a hole")
        require(lengths.min() > 0, "a row has no tokens")
