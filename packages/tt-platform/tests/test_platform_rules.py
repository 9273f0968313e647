"""Each configuration rule: what triggers it, what it says, what it changes, and what leaves it silent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_platform.config_facts import ConfigFacts
from tt_platform.findings import ConfigRejected, Kind
from tt_platform.options import TTOptions
from tt_platform.rules import RULES, settle

ADJUST, INFORM, REJECT = Kind.ADJUST, Kind.INFORM, Kind.REJECT


@dataclass(frozen=True)
class Case:
    """``when`` makes the rule speak with ``text``, and ``unless`` on top of it makes it silent."""

    when: dict[str, object]
    kind: Kind
    text: str
    unless: dict[str, object] | None = None
    changes: dict[str, object] = field(default_factory=dict)
    warn: bool = False


def options(**given_: object) -> dict[str, object]:
    return {"options": TTOptions.parse(given_)}


BLOCKS: dict[str, object] = {
    "output_tokens_per_step": 256,
    "model_class": "m:Diffusion",
    "supports_sample_on_device": True,
    **options(sample_on_device_mode="all"),
}
ADAPTIVE = BLOCKS | {"adaptive_blocks": True}

CASES = {
    "mesh_environment": [
        Case(
            {"environment_problem": "MESH_DEVICE='x' is not a mesh"},
            REJECT,
            "MESH_DEVICE='x' is not a mesh",
            {"environment_problem": None},
        )
    ],
    "device_present": [Case({"device_problem": "no chip"}, REJECT, "no chip", {"device_problem": None})],
    "v1_runner_variable": [
        Case(
            {"v2_runner_variable": "1"},
            REJECT,
            "VLLM_USE_V2_MODEL_RUNNER=1 is not supported on Tenstorrent: allowed 0; unset it",
            {"v2_runner_variable": "0"},
        ),
        Case({"v2_runner_variable": "true"}, REJECT, "VLLM_USE_V2_MODEL_RUNNER=true", {"v2_runner_variable": None}),
    ],
    "v1_runner_features": [
        Case(
            {"v2_runner_forced_by": "--watermark-config"},
            REJECT,
            "--watermark-config is not supported",
            {"v2_runner_forced_by": None},
        )
    ],
    "fabric_name": [
        Case(
            options(fabric_config="RING") | {"fabric_names": ("DISABLED", "FABRIC_1D")},
            REJECT,
            "additional_config.tt.fabric_config=RING is not supported on Tenstorrent: allowed DISABLED, FABRIC_1D",
            options(fabric_config="FABRIC_1D"),
        ),
        Case(options(fabric_config="RING") | {"fabric_names": ("FABRIC_1D",)}, REJECT, "RING", {"fabric_names": None}),
    ],
    "architecture_served": [
        Case(
            {"model_problem": "No Tenstorrent model serves X"},
            REJECT,
            "No Tenstorrent model serves X",
            {"model_problem": None},
        )
    ],
    "runner_of_the_class": [
        Case(
            {"runner_type": "pooling", "model_class": "m:Llama"},
            REJECT,
            "--runner pooling is not supported on Tenstorrent: allowed generate; m:Llama generates text",
            {"class_pools": True},
        ),
        Case(
            {"class_pools": True, "model_class": "m:Bert"},
            REJECT,
            "--runner generate is not supported on Tenstorrent: allowed pooling; m:Bert embeds prompts",
            {"class_pools": False},
        ),
    ],
    "pooling_steps": [
        Case(
            {"runner_type": "pooling", "class_pools": True, "async_scheduling": True},
            ADJUST,
            "embeds whole prompts: no chunks, no prefix cache, no async scheduling",
            {"async_scheduling": False},
            {"async_scheduling": False, "chunked_prefill": False, "prefix_caching": False},
        )
    ],
    "no_encoder_decoder": [
        Case({"encoder_decoder": True}, REJECT, "--model LlamaForCausalLM is not supported", {"encoder_decoder": False})
    ],
    "no_prompt_embeds": [
        Case({"prompt_embeds": True}, REJECT, "--enable-prompt-embeds is not supported", {"prompt_embeds": False})
    ],
    "text_only_class": [
        Case(
            {"multimodal": True, "model_class": "m:Text"},
            ADJUST,
            "m:Text takes text only: --language-model-only is set",
            {"class_multimodal": True},
            {"text_only": True},
            warn=True,
        )
    ],
    "worker_class": [
        Case(
            {"worker_class": "auto"},
            ADJUST,
            "Using worker class vllm_tt_plugin.worker.TTWorker",
            {"worker_class": "mine.Worker"},
            {"worker_class": "vllm_tt_plugin.worker.TTWorker"},
        )
    ],
    "block_forms": [
        Case(
            BLOCKS | {"unserved_blocks": ("tt_adaptive_block_ragged",)},
            REJECT,
            "m:Diffusion declares tt_adaptive_block_ragged, which is not implemented",
            {"output_tokens_per_step": 1},
        )
    ],
    "block_hooks": [
        Case(
            BLOCKS | {"missing_block_hooks": ("release_request",)},
            REJECT,
            "m:Diffusion puts out blocks of 256 tokens and has no release_request",
            {"missing_block_hooks": ("note_state_slots_moved",)},
        ),
        Case(
            ADAPTIVE | {"missing_block_hooks": ("note_state_slots_moved",), "max_num_seqs": 2},
            REJECT,
            "has no note_state_slots_moved",
            {"max_num_seqs": 1},
        ),
    ],
    "block_sampling": [
        Case(
            BLOCKS | options(),
            REJECT,
            "sample_on_device_mode=None is not supported on Tenstorrent: allowed all; set it",
            options(sample_on_device_mode="all"),
        ),
        Case(BLOCKS | options(sample_on_device_mode="decode_only"), REJECT, "allowed all;", {"adaptive_blocks": True}),
    ],
    "block_features": [
        Case(BLOCKS | {"speculative_method": "ngram"}, REJECT, "--speculative-config", {"output_tokens_per_step": 1}),
        Case(BLOCKS | {"logits_processors": True}, REJECT, "--logits-processors", {"logits_processors": False}),
        Case(BLOCKS | {"diffusion": True}, REJECT, "--diffusion-config", {"diffusion": False}),
        Case(BLOCKS | {"rust_front_end": True}, REJECT, "VLLM_USE_RUST_FRONTEND", {"rust_front_end": False}),
    ],
    "block_top_k": [Case(BLOCKS | {"max_device_top_k": 32}, REJECT, "max_device_top_k 32", {"max_device_top_k": None})],
    "block_engines": [
        Case(BLOCKS | {"data_parallel_size": 2}, REJECT, "--data-parallel-size 2", {"adaptive_blocks": True}),
        Case(
            ADAPTIVE | {"data_parallel_size": 2, "data_parallel_kind": "lanes", "max_num_seqs": 2},
            REJECT,
            "--data-parallel-size 2",
            {"data_parallel_size": 1},
        ),
    ],
    "block_executor": [
        Case(
            BLOCKS | {"executor_backend": "mp"},
            REJECT,
            "--distributed-executor-backend mp is not supported on Tenstorrent: allowed uni",
            {"adaptive_blocks": True},
        )
    ],
    "block_sequences": [
        Case(
            BLOCKS | {"max_num_seqs": 32},
            ADJUST,
            "Setting max_num_seqs=1",
            {"adaptive_blocks": True},
            {"max_num_seqs": 1},
            warn=True,
        )
    ],
    "block_async": [
        Case(
            BLOCKS | {"async_scheduling": True, "supports_async_decode": True},
            ADJUST,
            "Turning async scheduling off",
            {"adaptive_blocks": True},
            {"async_scheduling": False},
            warn=True,
        )
    ],
    "block_prompts": [
        Case(
            ADAPTIVE | {given: True},
            ADJUST,
            "Turning prefix caching and chunked prefill off",
            {"output_tokens_per_step": 1},
            {"chunked_prefill": False, "prefix_caching": False},
            warn=True,
        )
        for given in ("prefix_caching", "chunked_prefill")
    ],
    "block_context": [
        Case(
            BLOCKS | {"max_model_len": 287},
            REJECT,
            "--max-model-len 287 is not supported on Tenstorrent: allowed 288 or more",
            {"max_model_len": 288},
        )
    ],
    "block_output": [
        Case(
            ADAPTIVE | {"block_max_prompt": 100, "block_extent": 9},
            ADJUST,
            "Block output: m:Diffusion puts out blocks of 256 tokens",
            {"output_tokens_per_step": 1},
            {"block_output": {"width": 256, "adaptive": True, "max_prompt": 100, "extent": 9}},
        )
    ],
    "no_tensor_parallel": [
        Case(
            {"tensor_parallel_size": 2},
            REJECT,
            "--tensor-parallel-size 2 is not supported on Tenstorrent: allowed 1; "
            "choose the mesh with MESH_DEVICE instead of -tp",
            {"tensor_parallel_size": 1},
        )
    ],
    "no_pipeline_parallel": [
        Case({"pipeline_parallel_size": 2}, REJECT, "--pipeline-parallel-size 2", {"pipeline_parallel_size": 1})
    ],
    "no_context_parallel": [
        Case({"context_parallel_size": 2}, REJECT, "context-parallel-size", {"context_parallel_size": 1})
    ],
    "one_host": [Case({"nnodes": 2}, REJECT, "--nnodes 2 is not supported", {"nnodes": 1})],
    "no_multi_host_launcher": [
        Case(options(rank_binding="b.yaml"), REJECT, "additional_config.tt.rank_binding=b.yaml", options()),
        Case(options(env_passthrough=["A"]), REJECT, "additional_config.tt.env_passthrough", options()),
    ],
    "no_ray": [
        Case({"executor_backend": "ray"}, REJECT, "--distributed-executor-backend ray", {"executor_backend": "mp"})
    ],
    "lane_data_parallel": [
        Case(
            {"data_parallel_kind": "lanes", "data_parallel_size": 4, "max_num_seqs": 8},
            ADJUST,
            "Model requested DP (--data_parallel_size=4) but runs as a single device execute; "
            "running single-process TT lane-DP instead",
            {"data_parallel_kind": "standard"},
            {"data_parallel_size": 1, "lanes": 4, "max_num_seqs": 32, "executor_backend": "uni"},
            warn=True,
        ),
    ],
    "no_moe_standard_data_parallel": [
        Case({"moe": True, "data_parallel_size": 2}, REJECT, "--data-parallel-size 2", {"moe": False}),
        Case({"moe": True, "data_parallel_size": 2}, REJECT, "use one engine", {"data_parallel_size": 1}),
    ],
    "one_process_a_rank": [
        Case(
            {"data_parallel_size": 2, "executor_backend": "mp"},
            ADJUST,
            "Using --distributed-executor-backend uni",
            {"data_parallel_size": 1},
            {"executor_backend": "uni"},
        )
    ],
    "no_lora": [Case({"lora": True}, REJECT, "--enable-lora is not supported", {"lora": False})],
    "no_speculative_decoding": [
        Case({"speculative_method": "ngram"}, REJECT, "--speculative-config ngram", {"speculative_method": None}),
        Case({"speculative_method": "ngram", "supports_spec_decode": True}, REJECT, "the model declares support"),
    ],
    "compact_json": [
        Case(
            {"any_whitespace": True},
            ADJUST,
            "disable_any_whitespace",
            {"any_whitespace": False},
            {"any_whitespace": False},
        )
    ],
    "loose_json": [
        Case(
            {"any_whitespace": True, "structured_backend": "outlines"},
            INFORM,
            "backend outlines cannot make compact JSON",
            {"structured_backend": "xgrammar"},
            warn=True,
        )
    ],
    "device_sampling_declared": [
        Case(
            options(sample_on_device_mode="all") | {"model_class": "m:Mllama"},
            REJECT,
            "additional_config.tt.sample_on_device_mode=all is not supported on Tenstorrent: allowed unset; m:Mllama",
            {"supports_sample_on_device": True},
        ),
        Case(options(sample_on_device_mode="decode_only"), REJECT, "decode_only", options()),
    ],
    "max_logprobs": [
        Case(
            {"max_logprobs": value},
            ADJUST,
            f"max_logprobs={value} exceeds TT device limit of 20, clamping to 20",
            {"max_logprobs": 20},
            {"max_logprobs": 20},
            warn=True,
        )
        for value in (21, -1)
    ],
    "block_size": [
        Case(
            {"block_size": 16, "block_size_chosen": False},
            ADJUST,
            "Setting block_size=64",
            {"block_size_chosen": True},
            {"block_size": 64},
        )
    ],
    "block_size_on_tiles": [
        Case({"block_size": 16}, INFORM, "--block-size 16 is no multiple of 32", {"block_size": 32}, warn=True)
    ],
    "prefix_caching": [
        Case(
            {"prefix_caching": True, "model_class": "m:C"},
            ADJUST,
            "Prefix caching is not supported in TT backend for m:C, disabling it",
            {"supports_prefix_caching": True},
            {"prefix_caching": False},
            warn=True,
        ),
        Case(
            {"prefix_caching": True, "mamba_cache_mode": "align"},
            ADJUST,
            "Prefix caching is not supported",
            {"prefix_caching": False},
            {"prefix_caching": False, "mamba_cache_mode": "none"},
            warn=True,
        ),
    ],
    "prefix_caching_state": [
        Case({"prefix_caching": False}, INFORM, "Automatic prefix caching is disabled"),
        Case({"prefix_caching": True, "supports_prefix_caching": True}, INFORM, "Automatic prefix caching is enabled"),
    ],
    "rows": [
        Case(
            {"max_num_seqs": 12, "batch_sizes": (8, 16)},
            INFORM,
            "--max-num-seqs 12 runs in 16 rows: models.tt_transformers.tt.generator_vllm:LlamaForCausalLM takes 8, 16",
            {"max_num_seqs": 16},
        ),
        Case(
            {"max_num_seqs": 24, "lanes": 2, "batch_sizes": (8, 16), "data_parallel_kind": "lanes"},
            INFORM,
            "--max-num-seqs 12 runs in 16 rows",
            {"max_num_seqs": 32},
        ),
        Case(
            {"max_num_seqs": 64, "batch_sizes": (8, 16)},
            INFORM,
            "--max-num-seqs 64 may fail to load",
            {"batch_sizes": ()},
            warn=True,
        ),
    ],
    "chunked_prefill": [
        Case(
            {"chunked_prefill": True, "model_type": "qwen2_5_vl"},
            ADJUST,
            "Chunked prefill is not supported for `model_type=qwen2_5_vl`; disabling it.",
            {"supports_chunked_prefill": True},
            {"chunked_prefill": False},
        ),
    ],
    "no_prefill_threshold": [
        Case(
            {"long_prefill_token_threshold": 512},
            ADJUST,
            "long_prefill_token_threshold=512",
            {"chunked_prefill": True, "supports_chunked_prefill": True},
            {"long_prefill_token_threshold": 0},
            warn=True,
        )
    ],
    "whole_prompt_budget": [
        Case(
            {"max_num_batched_tokens": 2048, "max_model_len": 8192},
            ADJUST,
            "max_num_batched_tokens=2048 < max_model_len=8192 with chunked prefill disabled, bumping",
            {"chunked_prefill": True, "supports_chunked_prefill": True},
            {"max_num_batched_tokens": 8192},
            warn=True,
        ),
        Case(
            {"max_num_batched_tokens": 16384, "max_num_scheduled_tokens": 2048, "max_model_len": 8192},
            ADJUST,
            "bumping",
            {"max_num_scheduled_tokens": 8192},
            {"max_num_batched_tokens": 16384, "max_num_scheduled_tokens": 8192},
            warn=True,
        ),
    ],
    "whole_multimodal_inputs": [
        Case(
            {
                "chunked_prefill": True,
                "supports_chunked_prefill": True,
                "multimodal": True,
                "class_multimodal": True,
                "chunked_multimodal": True,
            },
            ADJUST,
            "multimodal inputs are kept whole",
            {"class_multimodal": False},
            {"chunked_multimodal": False},
            warn=True,
        )
    ],
    "whole_budget_for_images": [
        Case(
            {
                "chunked_prefill": True,
                "supports_chunked_prefill": True,
                "multimodal": True,
                "class_multimodal": True,
                "long_prefill_token_threshold": 32,
            },
            ADJUST,
            "long_prefill_token_threshold=32 would hold back a larger image for ever",
            {"class_multimodal": False},
            {"long_prefill_token_threshold": 0},
            warn=True,
        )
    ],
    "encoder_room": [
        Case(
            {
                "multimodal": True,
                "class_multimodal": True,
                "max_num_seqs": 8,
                "max_model_len": 512,
                "encoder_room": 512,
            },
            ADJUST,
            "encoder_cache_size=512 tokens would hold back images",
            {"encoder_room": 4096},
            {"encoder_room": 4096},
        )
    ],
    "chunked_prefill_state": [
        Case(
            {"chunked_prefill": True, "supports_chunked_prefill": True, "model_class": "m:C"},
            INFORM,
            "Chunked prefill enabled for m:C: max_num_batched_tokens=2048, long_prefill_token_threshold=0",
            {"chunked_prefill": False},
        )
    ],
    "async_scheduling": [
        Case(
            {"async_scheduling": True, "model_class": "m:C"},
            ADJUST,
            "Async scheduling was requested, but TT model m:C does not declare support",
            {"supports_async_decode": True},
            {"async_scheduling": False},
            warn=True,
        )
    ],
    "scheduler_class": [
        Case(
            {},
            ADJUST,
            "Using scheduler class vllm_tt_plugin.scheduler.TTScheduler",
            {"scheduler_class": "vllm_tt_plugin.scheduler.TTScheduler"},
            {"scheduler_class": "vllm_tt_plugin.scheduler.TTScheduler"},
        ),
        Case(
            {"lanes": 4},
            ADJUST,
            "Using TTLaneCoordinator with 4 in-process TT lanes",
            {"scheduler_class": "vllm_tt_plugin.lane_scheduler.TTLaneCoordinator"},
            {"scheduler_class": "vllm_tt_plugin.lane_scheduler.TTLaneCoordinator"},
        ),
        Case({"scheduler_class": "mine.Scheduler"}, INFORM, "--scheduler-cls mine.Scheduler is kept", warn=True),
    ],
    "closing_window": [
        Case(
            {"shutdown_timeout": 0},
            ADJUST,
            "Setting shutdown_timeout=30 s",
            {"closing_window": True},
            {"shutdown_timeout": 30, "closing_window": True},
        ),
        Case(
            {"shutdown_timeout": 0},
            ADJUST,
            "requests in flight are aborted",
            {"shutdown_timeout": 60},
            {"shutdown_timeout": 30, "closing_window": True},
        ),
    ],
}
NAMED = {rule.name: rule for rule in RULES}


def test_every_rule_has_a_case_and_a_line_for_the_docs():
    assert list(CASES) == list(NAMED)
    assert all(rule.docs.endswith(".") for rule in RULES)


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_a_rule_speaks_when_it_should(name: str, case: Case):
    finding = NAMED[name].check(ConfigFacts(**case.when))
    assert finding is not None
    assert finding.kind is case.kind
    assert case.text in finding.message
    assert "\n" not in finding.message
    assert dict(finding.changes) == case.changes
    assert finding.warn is case.warn


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases if case.unless is not None]
)
def test_a_rule_is_silent_otherwise(name: str, case: Case):
    assert NAMED[name].check(ConfigFacts(**case.when | (case.unless or {}))) is None


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases if case.kind is REJECT]
)
def test_a_rejection_stops_the_launch_with_its_own_line(name: str, case: Case):
    with pytest.raises(ConfigRejected) as caught:
        settle(ConfigFacts(**case.when))
    assert case.text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases if case.kind is ADJUST]
)
def test_an_adjustment_is_not_made_twice(name: str, case: Case):
    settled = settle(ConfigFacts(**case.when))
    assert settled.changes.items() >= case.changes.items()
    assert settle(settled.facts).changes == {}


def test_rules_see_what_earlier_rules_changed():
    """Chunked prefill goes off first; only then is the budget too small for a whole prompt."""
    facts = settle(ConfigFacts(chunked_prefill=True, max_num_batched_tokens=2048, max_model_len=8192)).facts
    assert (facts.chunked_prefill, facts.max_num_batched_tokens) == (False, 8192)


def test_a_configuration_without_a_model_passes():
    facts = ConfigFacts(architecture=None, chunked_prefill=True, prefix_caching=True, async_scheduling=True)
    settled = settle(facts)
    assert settled.facts.chunked_prefill
    assert settled.facts.prefix_caching
    assert settled.facts.async_scheduling


def test_lanes_are_served_for_a_mixture_of_experts():
    facts = ConfigFacts(data_parallel_kind="lanes", moe=True, data_parallel_size=4, max_num_seqs=8)
    assert settle(facts).facts.lanes == 4


FACTS = st.fixed_dictionaries(
    {},
    optional={
        "data_parallel_kind": st.sampled_from(["standard", "lanes"]),
        "data_parallel_size": st.integers(1, 8),
        "max_num_seqs": st.integers(1, 64),
        "max_model_len": st.integers(1, 200_000),
        "max_num_batched_tokens": st.integers(1, 200_000),
        "encoder_room": st.integers(0, 200_000),
        "max_num_scheduled_tokens": st.none() | st.integers(1, 200_000),
        "long_prefill_token_threshold": st.integers(0, 4096),
        "max_logprobs": st.integers(-1, 1000),
        "block_size": st.integers(1, 512),
        "mamba_cache_mode": st.sampled_from(["none", "align"]),
        "structured_backend": st.sampled_from(["auto", "xgrammar", "guidance", "outlines"]),
        "scheduler_class": st.none() | st.just("mine.Scheduler"),
        **dict.fromkeys(
            [
                "chunked_prefill",
                "supports_chunked_prefill",
                "prefix_caching",
                "supports_prefix_caching",
                "async_scheduling",
                "supports_async_decode",
                "multimodal",
                "class_multimodal",
                "text_only",
                "chunked_multimodal",
                "any_whitespace",
                "block_size_chosen",
            ],
            st.booleans(),
        ),
    },
)


@given(FACTS)
def test_settled_facts_settle_to_themselves(given_):
    settled = settle(ConfigFacts(**given_))
    again = settle(settled.facts)
    assert again.changes == {}
    assert again.facts == settled.facts


BLOCK_FACTS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ["adaptive_blocks", "chunked_prefill", "prefix_caching", "async_scheduling", "supports_async_decode"],
        st.booleans(),
    ),
)


@given(BLOCK_FACTS, st.integers(1, 64))
def test_settled_facts_of_block_output_settle_to_themselves(given_, sequences):
    settled = settle(ConfigFacts(**BLOCKS, **given_, max_num_seqs=sequences))
    assert settle(settled.facts).changes == {}
    assert not (settled.facts.chunked_prefill)
    assert not (settled.facts.prefix_caching)


@given(FACTS)
def test_without_chunked_prefill_every_prompt_can_be_scheduled(given_):
    facts = settle(ConfigFacts(**given_)).facts
    if not facts.chunked_prefill:
        budget = min(facts.max_num_batched_tokens, facts.max_num_scheduled_tokens or facts.max_num_batched_tokens)
        assert budget >= facts.max_model_len
        assert facts.long_prefill_token_threshold == 0


@given(FACTS)
def test_what_is_changed_is_said(given_):
    before = ConfigFacts(**given_)
    settled = settle(before)
    changed = {
        f.name for f in dataclasses.fields(ConfigFacts) if getattr(before, f.name) != getattr(settled.facts, f.name)
    }
    assert changed <= set(settled.changes)
    assert all(finding.message for finding in settled.findings)
