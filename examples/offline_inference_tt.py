"""Generate offline, or measure a batch, with the defaults of a Tenstorrent launch.

    MESH_DEVICE=T3K python examples/offline_inference_tt.py
    MESH_DEVICE=T3K python examples/offline_inference_tt.py --measure_perf
    MESH_DEVICE=T3K python examples/offline_inference_tt.py --model Qwen/Qwen2.5-VL-32B-Instruct --multi_modal

Prompts are the strings of a JSON file. Every engine option of vLLM is taken too: --max_model_len, --additional-config.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import LLM, EngineArgs, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.utils.argparse_utils import FlexibleArgumentParser

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
PROMPTS = Path(__file__).parent / "prompts.json"


def parse(arguments: Sequence[str]) -> tuple[Namespace, dict[str, Any]]:
    """This example's own options, and the engine's as keywords of LLM."""
    parser = FlexibleArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    own = [
        parser.add_argument("--prompts-json", type=Path, default=PROMPTS, help="a JSON list of prompts"),
        parser.add_argument("--num-repeat-prompts", type=int, default=1, help="ask each prompt so often"),
        parser.add_argument("--max-tokens", type=int, default=128, help="tokens of an answer"),
        parser.add_argument("--greedy-sampling", action="store_true", help="temperature 0"),
        parser.add_argument("--measure-perf", action="store_true", help="measure one full batch instead"),
        parser.add_argument("--perf-prompt-len", type=int, default=128, help="prompt tokens of the measured batch"),
        parser.add_argument("--multi-modal", action="store_true", help="ask about a picture instead of the prompts"),
        parser.add_argument("--multi-image", action="store_true", help="ask about two pictures"),
    ]
    EngineArgs.add_cli_args(parser)
    parser.add_argument("--max-seqs-in-batch", dest="max_num_seqs", type=int, help="the same as --max-num-seqs")
    parser.set_defaults(model=MODEL, max_num_seqs=32, block_size=64)
    engine = vars(parser.parse_args(arguments))
    return Namespace(**{action.dest: engine.pop(action.dest) for action in own}), engine


def main(arguments: Sequence[str]) -> int:
    options, engine = parse(arguments)
    if options.measure_perf:
        return measure(LLM(**engine), engine["max_num_seqs"], options.perf_prompt_len, options.max_tokens)
    # Before the engine, which takes long to start.
    prompts, sampling = prompts_of(options), sampling_of(options)
    llm = LLM(**engine)
    ask = llm.generate if isinstance(prompts[0], str) else llm.chat
    for prompt, answer in zip(prompts, ask(prompts, sampling), strict=True):
        asked = prompt if isinstance(prompt, str) else prompt[0]["content"][0]["text"]
        print(f"Prompt: {asked!r}\nAnswer: {answer.outputs[0].text!r}\n")
    return 0


def prompts_of(options: Namespace) -> list[Any]:
    """Texts of the prompts file, or conversations about pictures. Another file ends the program."""
    if options.multi_modal or options.multi_image:
        asked: list[Any] = [about_pictures(["red", "blue"] if options.multi_image else ["red"])]
    else:
        asked = json.loads(options.prompts_json.read_text())
        if not isinstance(asked, list) or not asked or not all(isinstance(text, str) for text in asked):
            raise SystemExit(f"--prompts-json {options.prompts_json}: allowed is a JSON list of at least one string")
    return asked * options.num_repeat_prompts


def sampling_of(options: Namespace) -> SamplingParams:
    if options.greedy_sampling:
        return SamplingParams(temperature=0, max_tokens=options.max_tokens)
    return SamplingParams(temperature=1.0, top_k=10, top_p=0.9, max_tokens=options.max_tokens)


def about_pictures(colours: Sequence[str]) -> list[dict[str, Any]]:
    """A conversation with one plain picture for each colour, as data URIs: nothing is fetched."""
    text = {"type": "text", "text": "Which colours do you see, in this order?"}
    pictures = [{"type": "image_url", "image_url": {"url": picture(colour)}} for colour in colours]
    return [{"role": "user", "content": [text, *pictures]}]


def picture(colour: str) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (224, 224), colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def measure(llm: LLM, rows: int, prompt_tokens: int, output_tokens: int) -> int:
    """Send a full batch of equal requests and print what it took. Answers 1 when a request fell short."""
    vocabulary = len(llm.get_tokenizer())
    # No two share a prefix: a cached one would not be computed.
    ids = [[(row + 31 * i + 1) % vocabulary for i in range(prompt_tokens)] for row in range(rows)]
    sampling = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True, detokenize=False)
    begun = time.perf_counter()
    answers = llm.generate([TokensPrompt(prompt_token_ids=prompt) for prompt in ids], sampling, use_tqdm=False)
    total = time.perf_counter() - begun
    lengths = [len(answer.outputs[0].token_ids) for answer in answers]
    times = [answer.metrics for answer in answers]
    first = [1000 * each.first_token_latency for each in times]
    print(f"Completed            {lengths.count(output_tokens)} of {rows} requests")
    print(f"Tokens               {prompt_tokens} in and {output_tokens} out for each")
    print(f"Time to first token  {sum(first) / rows:.0f} ms mean, {max(first):.0f} ms longest")
    if output_tokens > 1:
        rates = [(output_tokens - 1) / (each.last_token_ts - each.first_token_ts) for each in times]
        print(f"Decode               {sum(rates) / rows:.2f} tokens/s for each user")
    print(f"Throughput           {sum(lengths) / total:.2f} tokens/s in all")
    return 0 if lengths == [output_tokens] * rows else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
