"""Start vLLM's OpenAI-compatible server with the defaults of a Tenstorrent launch.

    MESH_DEVICE=T3K python examples/server_example_tt.py
    MESH_DEVICE=N150 python examples/server_example_tt.py --model meta-llama/Llama-3.1-8B-Instruct --max_model_len 32768

It is `vllm serve MODEL --max-num-seqs 32 --block-size 64`, shown before it starts; every other option goes to that
command as it is, so `--help` shows vLLM's own.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

MODEL = "meta-llama/Llama-3.1-70B-Instruct"


def command(arguments: Sequence[str]) -> list[str]:
    """The command line of `vllm serve` for the options of this example."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--max-num-seqs", "--max_num_seqs", default="32")
    parser.add_argument("--block-size", "--block_size", default="64")
    ours, others = parser.parse_known_args(arguments)
    given = ["--max-num-seqs", ours.max_num_seqs, "--block-size", ours.block_size, *others]
    return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", ours.model, *given]


if __name__ == "__main__":
    line = command(sys.argv[1:])
    print("vllm", shlex.join(line[3:]), flush=True)
    # In place of this process: a signal for the example is one for the server.
    os.execv(line[0], line)
