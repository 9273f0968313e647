"""The examples that launch scripts name: their options, and one run of each on the software mesh."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from vllm_tt_plugin.serving import free_port

EXAMPLES = Path(__file__).parents[1] / "examples"
HOST = {
    "TT_RUNTIME": "host",
    "TT_HOST_MAX_TOKENS_ALL_USERS": "16384",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
TT = json.dumps({"tt": {"sample_on_device_mode": "all"}})


def example(name: str) -> Any:
    """An example as a module; what it does when it is run is not done."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model() -> str:
    from tt_hostmesh.checkpoint import ensure

    return str(ensure())


def test_the_server_starts_with_the_defaults_of_a_tenstorrent_launch() -> None:
    server = example("server_example_tt")
    assert server.command([])[3:] == ["serve", server.MODEL, "--max-num-seqs", "32", "--block-size", "64"]


def test_what_the_server_example_does_not_know_is_vllms() -> None:
    others = ["--async-scheduling", "--max-model-len", "-1", "--additional-config", TT]
    given = ["--model", "m", "--max_num_seqs", "8", *others]
    expected = ["m", "--max-num-seqs", "8", "--block-size", "64", *others]
    assert example("server_example_tt").command(given)[4:] == expected


@pytest.mark.parametrize("name", ["prompts.json", "prompts_overlapping.json"])
def test_a_prompts_file_is_a_list_of_different_texts(name: str) -> None:
    prompts = json.loads((EXAMPLES / name).read_text())
    assert all(isinstance(prompt, str) and prompt for prompt in prompts)
    assert len(set(prompts)) == len(prompts) == 8


def test_the_overlapping_prompts_share_more_than_a_block_of_text() -> None:
    prompts = json.loads((EXAMPLES / "prompts_overlapping.json").read_text())
    shared = next(i for i, letters in enumerate(zip(*prompts, strict=False)) if len(set(letters)) > 1)
    assert len(prompts[0][:shared].split()) > 64


@pytest.mark.vllm
def test_the_offline_example_takes_its_own_options_and_the_engines() -> None:
    offline = example("offline_inference_tt")
    given = ["--max_seqs_in_batch", "4", "--max_model_len", "512", "--additional-config", TT, "--greedy_sampling"]
    options, engine = offline.parse([*given, "--num_repeat_prompts", "3"])
    assert engine["additional_config"] == json.loads(TT)
    kept = [engine[name] for name in ("model", "max_num_seqs", "block_size", "max_model_len")]
    assert kept == [offline.MODEL, 4, 64, 512]
    assert offline.prompts_of(options) == 3 * json.loads((EXAMPLES / "prompts.json").read_text())
    assert offline.sampling_of(options).temperature == 0
    assert offline.parse([])[1]["max_num_seqs"] == 32


@pytest.mark.vllm
def test_a_prompts_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    offline = example("offline_inference_tt")
    (tmp_path / "wrong.json").write_text('{"prompt": "a"}')
    options, _ = offline.parse(["--prompts_json", str(tmp_path / "wrong.json")])
    with pytest.raises(SystemExit, match="allowed is a JSON list"):
        offline.prompts_of(options)


@pytest.mark.vllm
@pytest.mark.parametrize(("option", "pictures"), [("--multi_modal", 1), ("--multi_image", 2)])
def test_pictures_are_part_of_the_request(option: str, pictures: int) -> None:
    offline = example("offline_inference_tt")
    ((message,),) = offline.prompts_of(offline.parse([option])[0])
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    assert len(set(urls)) == pictures
    assert all(url.startswith("data:image/png;base64,") for url in urls)


def offline_run(*arguments: str) -> str:
    """What the offline example prints."""
    command = [sys.executable, str(EXAMPLES / "offline_inference_tt.py"), "--max_model_len", "512", *arguments]
    done = subprocess.run(command, env={**os.environ, **HOST}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.vllm
@pytest.mark.engine
@pytest.mark.slow
def test_the_offline_example_measures_a_full_batch(model: str) -> None:
    size = ["--perf_prompt_len", "32", "--max_tokens", "6", "--max_seqs_in_batch", "4"]
    said = offline_run("--model", model, "--additional-config", TT, "--measure_perf", *size)
    assert re.search(r"^Completed +4 of 4 requests$", said, re.MULTILINE)
    first = re.search(r"^Time to first token +(\d+) ms mean, (\d+) ms longest$", said, re.MULTILINE)
    decode = re.search(r"^Decode +([\d.]+) tokens/s for each user$", said, re.MULTILINE)
    assert first is not None
    assert decode is not None
    assert 0 < int(first[1]) <= int(first[2])
    assert 0 < float(decode[1]) < 1000


@pytest.mark.vllm
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.default_row
def test_the_offline_example_answers_each_prompt_of_its_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "asked.json").write_text(json.dumps(["The capital of France is", "Two plus two is"]))
    asked = ["--prompts_json", str(tmp_path / "asked.json"), "--greedy_sampling", "--max_tokens", "8"]
    said = offline_run("--model", model, "--max_seqs_in_batch", "4", *asked)
    assert re.search(r"^Prompt: 'The capital of France is'\nAnswer: .*Paris", said, re.MULTILINE)
    assert said.count("Prompt: ") == 2


@pytest.mark.vllm
@pytest.mark.engine
@pytest.mark.slow
def test_the_server_example_serves_and_ends_at_a_signal(model: str, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "server.log"
    command = [sys.executable, str(EXAMPLES / "server_example_tt.py"), "--model", model, "--port", str(port)]
    command += ["--max_model_len", "512", "--max_num_seqs", "4", "--served-model-name", "demo"]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **HOST})
    try:
        deadline = time.monotonic() + 240
        while "Application startup complete" not in log.read_text():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)
        asked = {"model": "demo", "prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
        assert "Paris" in completion(port, asked)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    finally:
        server.kill()
    shown = f"vllm serve {model} --max-num-seqs 4 --block-size 64 --port {port} "
    assert log.read_text().startswith(shown)


def completion(port: int, body: dict[str, Any]) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return str(json.load(reply)["choices"][0]["text"])
