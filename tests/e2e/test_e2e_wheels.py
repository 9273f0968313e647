"""What is shipped serves: the built wheels in an empty environment, without the source tree."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from client import MODEL, generate
from reference import CASES

from conftest import HOST, ROOT
from vllm_tt_plugin import compat, install_vllm
from vllm_tt_plugin.serving import Server

sys.path.insert(0, str(ROOT / "tools"))
import torch_choice

pytestmark = [pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

WHERE = "import tt_worker, vllm_tt_plugin; print(tt_worker.__file__, vllm_tt_plugin.__file__)"


def environment_of_wheels(folder: Path, wheels: dict[str, Path], uv: str) -> str:
    """An environment with this process's vLLM release and our wheels; returns its interpreter."""
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    release = compat.load().row(version("vllm"))
    torch = torch_choice.find(uv, sys.executable, release.torch)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *torch.arguments], check=True)
    target = install_vllm.inspect(python, uv)
    vllm = install_vllm.build_wheel(release, target, cache=install_vllm.cache_dir(), run=install_vllm.execute)
    extras = {"tt-hostmesh": "[torch]"}
    ours = [f"{name}{extras.get(name, '')} @ {wheel.as_uri()}" for name, wheel in wheels.items()]
    excluded = folder / "excludes.txt"
    excluded.write_text("\n".join(install_vllm.excludes(target)) + "\n")
    wanted = [*install_vllm.requirements(release, target, vllm), *ours]
    install_vllm.execute(install_vllm.install_command(target, wanted, excluded))
    return python


def test_e2e_wheels_serve_without_the_source_tree(
    built_wheels: dict[str, Path], uv: str, checkpoint: Path, reference: Any, tmp_path: Path
) -> None:
    python = environment_of_wheels(tmp_path / "env", built_wheels, uv)
    where = subprocess.run([python, "-I", "-c", WHERE], capture_output=True, text=True, check=True).stdout
    assert str(ROOT) not in where
    assert where.count("site-packages") == 2
    server = Server(
        model=str(checkpoint),
        arguments=[
            "--served-model-name", MODEL, "--max-model-len", "1024", "--max-num-seqs", "4",
            "--additional-config", json.dumps({"tt": {"sample_on_device_mode": "all"}}),
        ],
        environ={**HOST, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"},
        log=tmp_path / "server.log",
        python=python,
    )  # fmt: skip
    cases = [CASES[0], CASES[6], CASES[14]]
    with server:
        prompts = [reference.prompt(case) for case in cases]
        for case, prompt in zip(cases, prompts, strict=True):
            assert asyncio.run(generate(server.url, case, prompt)) == reference.answer(case), case.name
        assert server.stop() == 0
