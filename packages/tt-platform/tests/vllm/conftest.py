"""Real vLLM configurations of a small Llama that a bundle of these tests serves on the software mesh.

vLLM chooses its platform once a process, so the runtime is chosen here, before anything imports vLLM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if find_spec("vllm") and find_spec("tt_hostmesh") else ["test_*.py"]
os.environ.setdefault("TT_RUNTIME", "host")

FULL = {
    "supports_prefix_caching": True,
    "supports_async_decode": True,
    "supports_sample_on_device": True,
    "supports_chunked_prefill": True,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., str]:
    """``checkpoint(architectures=[...])`` writes a model directory without weights."""

    def write(**changes: object) -> str:
        folder = tmp_path / "checkpoint"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
        return str(folder)

    return write


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """``bundle(capabilities, arch=..., data_parallel=...)`` serves an architecture with a class that declares them."""
    root = tmp_path / "bundles"
    monkeypatch.setenv("EXTRA_MODELS_DIR", str(root))
    modules: list[str] = []

    def serve(
        capabilities: dict[str, object], arch: str = "LlamaForCausalLM", attributes: str = "", **metadata: object
    ) -> None:
        module = f"tt_platform_bundle_{tmp_path.name}_{arch}".lower()
        folder = root / module
        folder.mkdir(parents=True)
        (folder / "vllm_metadata.json").write_text(
            json.dumps({"arch": arch, "main_class": f"{module}:Model", **metadata})
        )
        (folder / f"{module}.py").write_text(
            f"class Model:\n    model_capabilities = {capabilities!r}\n    {attributes}\n"
        )
        modules.append(str(folder))

    yield serve
    import sys

    sys.path[:] = [entry for entry in sys.path if entry not in modules]


@pytest.fixture
def configure(checkpoint: Callable[..., str]) -> Callable[..., Any]:
    """``configure(max_num_seqs=8)`` is vLLM's configuration of that launch."""

    def make(model: str | None = None, **arguments: object) -> Any:
        from vllm.engine.arg_utils import EngineArgs

        given: dict[str, Any] = {"skip_tokenizer_init": True, "max_num_seqs": 8, **arguments}
        return EngineArgs(model=model or checkpoint(), **given).create_engine_config()

    return make
