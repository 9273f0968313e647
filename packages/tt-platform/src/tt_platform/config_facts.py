"""What the configuration rules look at: plain values, taken from vLLM's configuration by the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tt_platform.options import TTOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """One launch. The defaults describe a small Llama on one chip with nothing special asked for.

    A field is an operator's value, or what vLLM made of it, unless it says otherwise. ``architecture`` is None when
    vLLM builds a configuration without a model, as its own tests do; rules about the model then have nothing to say.
    """

    # The machine and the environment.
    runtime: str = "ttnn"
    environment_problem: str | None = None  # MESH_DEVICE or TT_VISIBLE_DEVICES cannot be read
    device_problem: str | None = None  # why no device can be used, with what to do
    v2_runner_variable: str | None = None  # VLLM_USE_V2_MODEL_RUNNER
    v2_runner_forced_by: str | None = None  # a feature that makes vLLM choose its V2 runner in spite of the variable
    fabric_names: tuple[str, ...] | None = None  # None: this runtime cannot be asked
    options: TTOptions = field(default_factory=TTOptions)

    # The model.
    architecture: str | None = "LlamaForCausalLM"  # as the checkpoint spells it, without the TT prefix
    model_type: str = "llama"
    model_class: str = "models.tt_transformers.tt.generator_vllm:LlamaForCausalLM"
    model_problem: str | None = None  # why no class can serve the architecture, as a whole line
    runner_type: str = "generate"
    class_pools: bool = False  # the Tenstorrent class embeds prompts
    encoder_decoder: bool = False
    multimodal: bool = False  # vLLM takes the checkpoint for multimodal
    class_multimodal: bool = False  # the Tenstorrent class takes images
    text_only: bool = False  # vLLM refuses multimodal inputs
    moe: bool = False
    hybrid_state: bool = False  # attention mixed with recurrent (mamba, GDN) layers
    max_model_len: int = 8192
    max_logprobs: int = 20
    prompt_embeds: bool = False
    data_parallel_kind: Literal["standard", "lanes"] = "standard"

    # What the model class declares.
    supports_prefix_caching: bool = False
    supports_async_decode: bool = False
    supports_sample_on_device: bool = False
    supports_chunked_prefill: bool = False
    supports_spec_decode: bool = False
    output_tokens_per_step: int = 1
    adaptive_blocks: bool = False  # blocks for a lone row, single tokens for a batch
    unserved_blocks: tuple[str, ...] = ()  # declared forms of block output that are not run
    block_max_prompt: int = 0  # tokens; longer prompts stay at one token a step; 0: no limit
    block_extent: int = 0  # tokens that the device writes from a step's first position on
    missing_block_hooks: tuple[str, ...] = ()  # of those that block output needs
    max_device_top_k: int | None = None
    batch_sizes: tuple[int, ...] = ()  # rows a lane that the class can be loaded with; empty: any number

    # Parallelism.
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    data_parallel_size: int = 1
    nnodes: int = 1
    executor_backend: str | None = None
    lanes: int = 1  # resolved lane count; above 1 once the fold was applied
    worker_class: str = "auto"

    # Scheduling and cache.
    scheduler_class: str | None = None
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048
    max_num_scheduled_tokens: int | None = None
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = False
    chunked_multimodal: bool = False  # a multimodal input may be split over two chunks
    encoder_room: int = 2048  # tokens of images that vLLM computes in one step, and that it keeps
    prefix_caching: bool = False
    mamba_cache_mode: str = "none"
    async_scheduling: bool = False
    block_size: int = 64
    block_size_chosen: bool = True  # the operator gave --block-size

    # The end of a server.
    shutdown_timeout: int | None = None  # seconds; None: this process serves nobody, or vLLM has no such setting
    closing_window: bool = False  # the rule of that name was applied

    # Features.
    block_output: Mapping[str, object] | None = None  # stored by the rule of that name
    logits_processors: bool = False  # the operator's own
    diffusion: bool = False  # vLLM's own
    rust_front_end: bool = False
    lora: bool = False
    speculative_method: str | None = None
    any_whitespace: bool = False  # JSON grammars may contain free whitespace
    structured_backend: str = "auto"
