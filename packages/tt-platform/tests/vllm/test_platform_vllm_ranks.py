"""Two data-parallel ranks as real processes, each on its own half of a software T3K."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.default_row, pytest.mark.vllm, pytest.mark.engine, pytest.mark.slow]

START_SECONDS = 600  # vLLM is imported by five processes


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A Llama of two small layers with random weights, and a tokenizer of the words w0 to w255."""
    pytest.importorskip("tt_worker")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    LlamaForCausalLM(LlamaConfig(**shape, **heads)).save_pretrained(tmp_path / "weights")
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(256)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", unk_token="w0")
    tokenizer.save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


class Server:
    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{port}"
        self.log = log

    def wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=5).close()
            except OSError:
                time.sleep(1)
            else:
                return
        raise AssertionError(f"not healthy after {START_SECONDS} s: {self.log.read_text()[-4000:]}")

    def complete(self, prompt: str) -> str:
        body = {"model": "words", "prompt": prompt, "max_tokens": 5, "temperature": 0}
        request = urllib.request.Request(
            f"{self.address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())["choices"][0]["text"]

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@pytest.fixture
def serve(tmp_path: Path, weights: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*arguments: str, **environ: str) -> Server:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = tmp_path / "server.log"
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(weights), "--port", str(port)]
        command += ["--host", "127.0.0.1", "--served-model-name", "words", "--max-num-seqs", "4", *arguments]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env={**os.environ, "TT_RUNTIME": "host", **environ}, stdout=out, stderr=subprocess.STDOUT
            )
        started.append(Server(process, port, log))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_two_ranks_serve_on_disjoint_chips_and_close_their_meshes(serve):
    server = serve("--data-parallel-size", "2", MESH_DEVICE="T3K")
    server.wait_until_healthy()
    answers = [server.complete(f"w7 w9 w{10 + number % 2}") for number in range(8)]
    assert server.stop() == 0

    log = server.log.read_text()
    bound = re.findall(r"Bound TT_VISIBLE_DEVICES=(\S+) for local DP rank (\d)", log)
    assert sorted(bound) == [("0,1,2,3", "0"), ("4,5,6,7", "1")]
    assert log.count("multidevice with 4 devices and grid (1, 4) is created") == 2
    assert log.count("Closed the device mesh") == 2
    served = [int(count) for count in re.findall(r"TT worker ran (\d+) prefill steps", log)]
    assert len(served) == 2
    assert all(served)
    assert sum(served) == 8
    assert len(set(answers[::2])) == len(set(answers[1::2])) == 1  # the same prompt on either rank
    assert all(len(answer.split()) == 5 for answer in answers)
