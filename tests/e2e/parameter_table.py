"""Every request parameter that is about sampling: a value, what it does, and where its step is sampled then.

`docs/parameters.md` is this table: `python tests/e2e/parameter_table.py > docs/parameters.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import parameter_effects as effects
from parameter_effects import Api

DEVICE, HOST, VLLM = "device", "host", "vLLM"
NO_PATH, COMPLETIONS, CHAT = "", "/v1/completions", "/v1/chat/completions"


@dataclass(frozen=True)
class Effect:
    """A parameter with an effect. where: DEVICE, HOST, or VLLM when sampling has no part in it."""

    name: str
    value: str
    where: str
    effect: str
    check: Callable[[Api], None]


@dataclass(frozen=True)
class Refusal:
    """A parameter that is refused with HTTP 400. says: words of the answer;  body: besides the prompt."""

    name: str
    value: str
    says: str
    by: str
    body: dict[str, Any] = field(default_factory=dict)
    path: str = COMPLETIONS


EFFECTS = (
    Effect("temperature", "0; 1.8 with top_k 32", DEVICE, "greedy; answers differ", effects.temperature),
    Effect("top_p", "1e-6", DEVICE, "only the best token is left", effects.top_p),
    Effect("top_k", "1", DEVICE, "only the best token is left", effects.top_k),
    Effect("top_k", "40, or none with a temperature", HOST, "beyond the device's 32", effects.top_k_beyond_the_device),
    Effect("min_p", "1.0", HOST, "only the best token is left", effects.min_p),
    Effect("seed", "2**40 + 1; -1", HOST, "the same answer again; another one", effects.seed),
    Effect("n", "3", HOST, "three different answers", effects.n),
    Effect("presence_penalty", "2.0", DEVICE, "more different tokens", effects.presence_penalty),
    Effect("frequency_penalty", "2.0", DEVICE, "fewer repetitions of a token", effects.frequency_penalty),
    Effect("repetition_penalty", "8.0", DEVICE, "no token of the prompt again", effects.repetition_penalty),
    Effect("logit_bias", '{"339": 100}', HOST, "this token alone", effects.logit_bias),
    Effect("allowed_token_ids", "[339, 340, 341]", HOST, "these tokens alone", effects.allowed_token_ids),
    Effect("bad_words", "the first word of the answer", HOST, "the word is gone", effects.bad_words),
    Effect("stop", "a word of the answer", VLLM, "the answer ends before it", effects.stop),
    Effect("include_stop_str_in_output", "true", VLLM, "it ends with it", effects.include_stop_str_in_output),
    Effect("stop_token_ids", "a token of the answer", VLLM, "the answer ends with it", effects.stop_token_ids),
    Effect("min_tokens", "5", HOST, "no stop token before; then the device again", effects.min_tokens),
    Effect("ignore_eos", "true", VLLM, "the answer goes on", effects.ignore_eos),
    Effect("max_tokens", "3", VLLM, "three tokens", effects.max_tokens),
    Effect("max_completion_tokens (chat)", "3", VLLM, "three tokens", effects.max_completion_tokens),
    Effect("logprobs", "3", HOST, "the best three of each token, the first included", effects.logprobs),
    Effect("logprobs", "0", HOST, "the sampled token's", effects.logprobs_of_the_sampled_token),
    Effect("logprobs, top_logprobs (chat)", "true, 2", HOST, "the best two of each token", effects.chat_logprobs),
    Effect("logprob_token_ids", "[339, 340]", HOST, "the logprobs of these tokens", effects.logprob_token_ids),
    Effect("structured_outputs", "json; response_format json_schema", HOST, "valid JSON", effects.structured_json),
    Effect("structured_outputs", "regex", HOST, "a match", effects.structured_regex),
    Effect("structured_outputs", "choice", HOST, "one of the choices", effects.structured_choice),
    Effect("structured_outputs", "grammar", HOST, "a sentence of it", effects.structured_grammar),
    Effect("response_format (chat)", "json_object", HOST, "a JSON object", effects.response_format),
    Effect("use_beam_search", "true, n=2", HOST, "the two best beams", effects.use_beam_search),
    Effect("repetition_detection", "a pattern of 4, 4 times", VLLM, "the answer ends", effects.repetition_detection),
    Effect("echo", "true", VLLM, "the prompt comes before the answer", effects.echo),
    Effect("truncate_prompt_tokens", "4", VLLM, "four tokens of prompt", effects.truncate_prompt_tokens),
    Effect("truncation_side", "left; right", VLLM, "the last four; the first four", effects.truncation_side),
    Effect("return_token_ids", "true", VLLM, "token ids of prompt and answer", effects.return_token_ids),
    Effect("return_tokens_as_token_ids", "true", HOST, "token_id:N in logprobs", effects.return_tokens_as_token_ids),
    Effect("skip_special_tokens", "false", VLLM, "special tokens are in the text", effects.skip_special_tokens),
    Effect("add_special_tokens", "false", VLLM, "no difference: this model adds none", effects.add_special_tokens),
    Effect("continue_final_message (chat)", "true", VLLM, "the message goes on", effects.continue_final_message),
    Effect("stream", "true", VLLM, "the same text in pieces", effects.stream),
    Effect("stream_interval", "4", VLLM, "fewer pieces", effects.stream_interval),
    Effect("vllm_xargs", "any", VLLM, "handed to custom logits processors", effects.vllm_xargs),
)

REFUSALS = (
    Refusal("prompt_logprobs", "1", "prompt_logprobs", "tt", {"prompt_logprobs": 1}),
    Refusal("prompt_logprobs", "0", "prompt_logprobs", "tt", {"prompt_logprobs": 0}),
    Refusal("prompt_logprobs (chat)", "1", "prompt_logprobs", "tt", {"prompt_logprobs": 1}, CHAT),
    Refusal("echo with logprobs", "true, 1", "prompt_logprobs", "tt", {"echo": True, "logprobs": 1}),
    Refusal("watermarking", "true", "watermark", "tt", {"watermarking": True}),
    Refusal(
        "routed_experts_prompt_start", "1", "routed_experts_prompt_start", "tt", {"routed_experts_prompt_start": 1}
    ),
    Refusal("prompt_embeds", "any", "prompt", "vLLM", {"prompt": None, "prompt_embeds": "AAAA"}),
    Refusal(
        "thinking_token_budget", "8, without a reasoning parser", "thinking_token_budget", "vLLM",
        {"thinking_token_budget": 8},
    ),
    Refusal("logprobs", "21: the limit is 20", "logprobs", "vLLM", {"logprobs": 21}),
    Refusal("top_k", "-5", "top_k", "vLLM", {"top_k": -5}),
    Refusal("temperature", "-1", "temperature", "vLLM", {"temperature": -1}),
    Refusal("suffix", "any", "suffix", "vLLM", {"suffix": "!"}),
    Refusal("allowed_token_ids", "beyond the vocabulary", "vocab", "vLLM", {"allowed_token_ids": [10**6]}),
    Refusal(
        "tools, tool_choice (chat)", "auto, unless launched for it", "tool", "vLLM",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "auto"}, CHAT,
    ),
    Refusal("structured_outputs", "a broken regex", "", "vLLM", {"structured_outputs": {"regex": "[0-9"}}),
)  # fmt: skip

ELSEWHERE = frozenset(
    {
        # The prompt and the model.
        "model", "prompt", "messages", "documents", "chat_template", "chat_template_kwargs", "add_generation_prompt",
        "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "return_mm_kwargs", "reasoning_effort",
        "priority", "cache_salt", "kv_transfer_params", "ec_transfer_params",
        # The reply's form.
        "stream_options", "include_reasoning", "return_prompt_text", "return_token_offsets", "return_weight_versions",
        "return_assistant_tokens_mask", "parallel_tool_calls", "spaces_between_special_tokens",
        # Names.
        "user", "request_id", "session_id",
        # Of beams only.
        "length_penalty",
    }
)  # fmt: skip
"""Request fields that have nothing to do with sampling, or act together with one that is in the table."""

HEAD = """# Request parameters

What each parameter of the OpenAI API, and each of vLLM's additions, does on Tenstorrent. Every line is a test against
a running server with `sample_on_device_mode: all` and a mesh of one chip; this page is written from the same table:
`python tests/e2e/parameter_table.py > docs/parameters.md`.

*Sampled* is where the steps of the request, and of those beside it, are sampled: on the `device` or on the `host`.
`vLLM` means that the parameter acts before or after sampling, and the step stays on the device. More about places and
reasons: [sampling](sampling.md).

| parameter | value | sampled | effect |
|---|---|---|---|
"""

REFUSED_HEAD = """
Refused with HTTP 400. The engine never sees such a request.

| parameter | value | by |
|---|---|---|
"""

TAIL = """
Every field of `SamplingParams` that the plugin gives no effect is refused, one that a new vLLM release adds included.
`best_of` and per-request `logits_processors` are no parameters of the supported vLLM releases; custom logits processors
are chosen at launch (`--logits-processors`) and run on the host.
"""


def page() -> str:
    """The text of docs/parameters.md."""
    served = "".join(f"| `{case.name}` | {case.value} | {case.where} | {case.effect} |\n" for case in EFFECTS)
    by = {"tt": "the plugin", "vLLM": "vLLM"}
    refused = "".join(f"| `{case.name}` | {case.value} | {by[case.by]} |\n" for case in REFUSALS)
    return HEAD + served + REFUSED_HEAD + refused + TAIL


def named() -> set[str]:
    """The request fields that the table speaks of."""
    words = {word.strip(", ") for case in (*EFFECTS, *REFUSALS) for word in case.name.split()}
    return words | {key for case in REFUSALS for key in case.body}


if __name__ == "__main__":
    print(page(), end="")
