"""The names that other people's configurations, scripts and environments carry."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from vllm_tt_plugin.config import get_tt_config
from vllm_tt_plugin.spec_decode import MODEL_OWNED_DRAFTER

ROOT = Path(__file__).parents[1]
NAMES = [
    ("platform", "TTPlatform"),
    ("worker", "TTWorker"),
    ("scheduler", "TTScheduler"),
    ("lane_scheduler", "TTLaneCoordinator"),
    ("launcher", "TTCoreEngineLauncher"),
    ("model_input", "TTSamplingParams"),
    ("model_runner", "TTModelRunner"),
]
PROBE = """
import sys
import vllm
from vllm.platforms import current_platform
from vllm.plugins import load_general_plugins
load_general_plugins()
ours = sorted(n for n in sys.modules if n.split(".")[0] in {"ttnn", "tt_hostmesh", "tt_worker", "tt_scheduler"})
import os
print(type(current_platform).__name__, ours, os.environ.get("VLLM_USE_V2_MODEL_RUNNER"))
"""


def test_the_entry_points_are_those_of_the_reference_plugin() -> None:
    platforms = {e.name: e.value for e in entry_points(group="vllm.platform_plugins")}
    general = {e.name: e.value for e in entry_points(group="vllm.general_plugins")}
    assert platforms["tt"] == "vllm_tt_plugin.entrypoints:platform_plugin"
    assert general["tt_model_registry"] == "vllm_tt_plugin.entrypoints:register"


@pytest.mark.vllm
@pytest.mark.parametrize(("module", "name"), NAMES)
def test_drop_in_names_are_the_classes_themselves(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TT_RUNTIME", "host")
    # As in every process that meets these names: vLLM resolves its platform, and so imports ours, while it is imported.
    import_module("vllm")
    assert isinstance(getattr(import_module(f"vllm_tt_plugin.{module}"), name), type)


def test_the_multi_host_launcher_says_what_to_do_instead() -> None:
    from vllm_tt_plugin.launcher import TTCoreEngineLauncher

    with pytest.raises(NotImplementedError, match="--data-parallel-size on one host"):
        TTCoreEngineLauncher(None, executor_class=None)


@pytest.mark.vllm
def test_a_drafter_owned_by_the_model_is_refused_like_every_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from vllm.engine.arg_utils import EngineArgs

    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(llama))
    drafter = {"method": "custom_class", "model": MODEL_OWNED_DRAFTER, "num_speculative_tokens": 2}
    arguments = EngineArgs(model=str(tmp_path), skip_tokenizer_init=True, speculative_config=drafter)
    with pytest.raises(ValueError, match="--speculative-config custom_class is not supported"):
        arguments.create_engine_config()


def test_sampling_parameters_have_the_nine_fields_that_models_rebuild() -> None:
    from vllm_tt_plugin.model_input import TTSamplingParams

    assert [field.name for field in fields(TTSamplingParams)] == [
        "temperature",
        "top_k",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
        "num_logprobs",
        "enable_log_probs",
    ]


def test_every_module_and_file_that_the_page_for_newcomers_names_is_there() -> None:
    page = (ROOT / "docs" / "dropin.md").read_text()
    modules = set(re.findall(r"`((?:vllm_tt_plugin|tt_\w+)(?:\.[a-z_]+)+)", page)) - {MODEL_OWNED_DRAFTER}
    files = re.findall(r"`((?:docs|examples|tests)/[\w./-]+)`", page)
    assert {f"vllm_tt_plugin.{module}" for module, _ in NAMES} <= modules
    sources = [ROOT / "src", *ROOT.glob("packages/*/src")]
    for module in modules:
        # A name of a module, or of something in it.
        paths = {module.replace(".", "/"), module.rpartition(".")[0].replace(".", "/")}
        assert any((source / f"{path}.py").exists() for source in sources for path in paths), module
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_get_tt_config_is_the_tt_entry_of_additional_config() -> None:
    options = {"trace_mode": "none"}
    assert get_tt_config(SimpleNamespace(additional_config={"tt": options})) is options  # type: ignore[arg-type]
    assert get_tt_config(SimpleNamespace(additional_config=None)) == {}  # type: ignore[arg-type]


def probe(**environ: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in {"TT_RUNTIME", "VLLM_PLUGINS", "VLLM_USE_V2_MODEL_RUNNER"}}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=300, env={**clean, **environ}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.vllm
@pytest.mark.slow
def test_an_ordinary_environment_is_not_disturbed() -> None:
    """No ttnn, no TT_RUNTIME: the platform is the same as without the plugin; nothing is loaded or set."""
    with_plugin = probe()
    without = probe(VLLM_PLUGINS="none_of_ours")
    assert with_plugin == without
    assert with_plugin.endswith("[] None")


@pytest.mark.default_row
@pytest.mark.vllm
@pytest.mark.slow
def test_the_software_mesh_activates_by_name_only() -> None:
    assert probe(TT_RUNTIME="host").startswith("TTPlatform")
