"""Bad launches: one clear error each, before a device is opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import HOST

pytestmark = [pytest.mark.default_row, pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]


@dataclass(frozen=True)
class Refused:
    """A launch that must fail, and what its one error says."""

    arguments: tuple[str, ...]
    says: tuple[str, ...]
    model: str = "ok"
    environ: tuple[tuple[str, str], ...] = ()


LAUNCHES = {
    "no such model directory": Refused((), ("/nowhere/at/all",), model="/nowhere/at/all"),
    "an architecture nobody serves": Refused((), ("GPT2LMHeadModel", "EXTRA_MODELS_DIR"), model="gpt2"),
    "tensor parallel": Refused(("-tp", "2"), ("tensor-parallel-size", "MESH_DEVICE")),
    "a wrong tt option": Refused(
        ("--additional-config", json.dumps({"tt": {"trace_mode": "some"}})), ("trace_mode", "'some'", "decode_only")
    ),
    # These two are refused in process as well (tt-platform's tests): here the launcher is seen too.
    "a wrong runtime": Refused((), ("TT_RUNTIME", "auto", "ttnn", "host"), environ=(("TT_RUNTIME", "gpu"),)),
    "a mesh that does not exist": Refused((), ("MESH_DEVICE", "N150", "T3K"), environ=(("MESH_DEVICE", "N151"),)),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Configurations are enough: none of these launches gets as far as weights."""
    from transformers import GPT2Config, LlamaConfig

    folder = tmp_path_factory.mktemp("models")
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=256,
        max_position_embeddings=256,
    ).save_pretrained(folder / "ok")
    GPT2Config(architectures=["GPT2LMHeadModel"], n_embd=64, n_layer=1, n_head=2).save_pretrained(folder / "gpt2")
    return {"ok": str(folder / "ok"), "gpt2": str(folder / "gpt2")}


LONG = ("a wrong runtime", "a mesh that does not exist")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in LAUNCHES])
def test_e2e_a_bad_launch_is_refused_with_one_clear_error(name: str, models: dict[str, str], tmp_path: Path) -> None:
    launch = LAUNCHES[name]
    log = tmp_path / "steps.jsonl"
    arguments = launch.arguments or ("--additional-config", json.dumps({"tt": {"step_log": str(log)}}))
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", models.get(launch.model, launch.model)]
    command += ["--skip-tokenizer-init", "--max-model-len", "128", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **HOST, **dict(launch.environ)}
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    for words in launch.says:
        assert words in output
    frames = [line for line in output.splitlines() if 'File "' in line and ("tt_" in line or "vllm_tt_plugin" in line)]
    assert not frames, "our own frames in a traceback"
    assert "Attempting to open mesh device" not in output
    assert not log.exists()
