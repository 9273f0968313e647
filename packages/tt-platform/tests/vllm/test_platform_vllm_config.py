"""Each rule through real engine arguments: refused with one line, or settled, and settled again to the same."""

from __future__ import annotations

import copy
import logging
import re
import sys

import pytest

pytestmark = pytest.mark.vllm

# These rules cannot be reached with the arguments of a small checkpoint: vLLM itself refuses first.
UNREACHED = {
    "no_context_parallel": "vLLM wants tensor parallelism for it, which is refused first",
    "no_ray": "vLLM imports Ray first",
    "no_encoder_decoder": "vLLM wants the tokenizer and the audio processor of the checkpoint first",
    "v1_runner_features": "the features want a draft model or CUDA first",
    "loose_json": "vLLM wants the backend's package, or its own options for it",
}
FULL = {
    "supports_prefix_caching": True,
    "supports_async_decode": True,
    "supports_sample_on_device": True,
    "supports_chunked_prefill": True,
}


def refused(*texts: str):
    """What the operator reads contains ``texts``, in this order; pydantic puts a heading before our line."""
    return pytest.raises(ValueError, match=".*".join(map(re.escape, texts)))


REJECTED = {
    "no_tensor_parallel": (
        {"tensor_parallel_size": 2},
        "--tensor-parallel-size 2 is not supported on Tenstorrent: allowed 1; "
        "choose the mesh with MESH_DEVICE instead of -tp",
    ),
    "no_pipeline_parallel": ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size 2 is not supported"),
    "one_host": ({"nnodes": 2, "data_parallel_size": 2}, "--nnodes 2 is not supported"),
    "no_lora": ({"enable_lora": True}, "--enable-lora is not supported on Tenstorrent: allowed unset"),
    "no_speculative_decoding": (
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}},
        "--speculative-config ngram is not supported",
    ),
    "no_prompt_embeds": ({"enable_prompt_embeds": True}, "--enable-prompt-embeds is not supported"),
    "device_sampling_declared": (
        {"additional_config": {"tt": {"sample_on_device_mode": "all"}}},
        "additional_config.tt.sample_on_device_mode=all is not supported on Tenstorrent: allowed unset",
    ),
    "fabric_name": (
        {"additional_config": {"tt": {"fabric_config": "RING"}}},
        "additional_config.tt.fabric_config=RING is not supported on Tenstorrent: allowed ",
    ),
    "no_multi_host_launcher": (
        {"additional_config": {"tt": {"rank_binding": "b.yaml"}}},
        "additional_config.tt.rank_binding=b.yaml is not supported",
    ),
    "options": (
        {"additional_config": {"tt": {"trace_mode": "sometimes"}}},
        "additional_config.tt.trace_mode='sometimes' is not valid: allowed all, decode_only, none",
    ),
    "no object": ({"additional_config": {"tt": ["trace_mode"]}}, "additional_config.tt=['trace_mode'] is not valid"),
}


# Rules that the tests below reach by the environment, or that settle a launch instead of refusing it.
OTHERS = {
    "text_only_class",
    "whole_multimodal_inputs",
    "whole_budget_for_images",
    "encoder_room",
    "mesh_environment",
    "device_present",
    "v1_runner_variable",
    "architecture_served",
    "runner_of_the_class",
    "pooling_steps",
    "block_forms",
    "block_hooks",
    "block_sampling",
    "block_features",
    "block_top_k",
    "block_engines",
    "block_executor",
    "block_sequences",
    "block_async",
    "block_prompts",
    "block_context",
    "block_output",
    "worker_class",
    "lane_data_parallel",
    "no_moe_standard_data_parallel",
    "one_process_a_rank",
    "compact_json",
    "max_logprobs",
    "block_size",
    "block_size_on_tiles",
    "prefix_caching",
    "prefix_caching_state",
    "rows",
    "chunked_prefill",
    "no_prefill_threshold",
    "whole_prompt_budget",
    "chunked_prefill_state",
    "async_scheduling",
    "scheduler_class",
    "closing_window",
}


def test_every_rule_is_reached_here_or_said_not_to_be():
    from tt_platform.rules import RULES

    reached = (set(REJECTED) - {"options", "no object"}) | OTHERS
    assert reached | set(UNREACHED) == {rule.name for rule in RULES}
    assert not reached & set(UNREACHED)


@pytest.mark.parametrize("name", list(REJECTED))
def test_a_launch_that_cannot_work_is_refused_with_one_line(bundle, configure, name):
    bundle({})
    arguments, text = REJECTED[name]
    with refused(text):
        configure(**arguments)


def test_a_pooling_launch_is_refused(bundle, configure):
    bundle({})
    with refused("--runner pooling is not supported"):
        configure(runner="pooling")


@pytest.mark.parametrize(("variable", "value"), [("MESH_DEVICE", "T4K"), ("TT_VISIBLE_DEVICES", "first")])
def test_an_environment_that_cannot_be_read_is_refused(bundle, configure, monkeypatch, variable, value):
    bundle({})
    monkeypatch.setenv(variable, value)
    with refused(f"{variable}={value!r}"):
        configure()


def test_a_runtime_that_does_not_exist_is_refused_with_the_three_names(bundle, configure, monkeypatch):
    bundle({})
    monkeypatch.setenv("TT_RUNTIME", "gpu")
    with refused("TT_RUNTIME='gpu' is not a runtime: allowed auto, ttnn, host"):
        configure()


def test_a_runtime_that_is_not_installed_is_refused(bundle, configure, monkeypatch):
    bundle({})
    monkeypatch.setenv("TT_RUNTIME", "ttnn")
    monkeypatch.setitem(sys.modules, "ttnn", None)
    with refused("ttnn cannot be imported"):
        configure()


def test_a_runtime_without_a_device_is_refused(bundle, configure, monkeypatch):
    from tt_platform.vllm import platform
    from tt_platform.vllm.device import DeviceCheck

    bundle({})
    monkeypatch.setattr(platform, "check_device", lambda config: DeviceCheck("ttnn", "ttnn sees no chip"))
    with refused("ttnn sees no chip"):
        configure()


def test_an_architecture_that_nobody_serves_is_refused_with_the_known_ones(bundle, configure, checkpoint):
    bundle({})
    with refused("No Tenstorrent model serves the architecture 'Qwen2ForCausalLM'", "TTLlamaForCausalLM"):
        configure(checkpoint(architectures=["Qwen2ForCausalLM"], model_type="qwen2"))


def test_a_class_that_cannot_be_imported_is_named(bundle, configure, tmp_path):
    bundle({})
    next((tmp_path / "bundles").glob("*/*.py")).write_text("import a_package_that_is_missing\n")
    with refused("a_package_that_is_missing"):
        configure()


def test_a_model_that_puts_out_blocks_and_cannot_end_a_request_is_refused(bundle, configure):
    """The class of a bundle has no hooks."""
    bundle({"output_tokens_per_step": 256})
    with refused("puts out blocks of 256 tokens and has no release_request"):
        configure()


def test_recurrent_layers_keep_one_state_a_request_once_prefix_caching_is_off(configure, checkpoint):
    """vLLM aligned the states' blocks with the cache's before any hook ran. Fails when only the flag is turned off."""
    model = checkpoint(architectures=["TTQwen3_5ForCausalLM"], model_type="qwen3_5_text")
    for _ in range(2):
        config = configure(model, enable_prefix_caching=True, max_model_len=512)
    cache = config.cache_config
    settled = (cache.enable_prefix_caching, cache.mamba_cache_mode, cache.mamba_block_size, cache.block_size)
    assert settled == (False, "none", 512, 64)


def test_what_a_model_declares_of_its_blocks_reaches_scheduler_and_worker(configure, monkeypatch):
    monkeypatch.setenv(
        "TT_MODEL_CLASS_OVERRIDES",
        "LlamaForCausalLM=tt_hostmesh.blocks.generator:AdaptiveBlockLlamaForCausalLM",
    )
    config = configure(additional_config={"tt": {"sample_on_device_mode": "all"}})
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    from tt_platform.vllm.platform import TTPlatform

    config.model_config.max_model_len = 96  # as vLLM does when it has fitted -1 to the pool
    with pytest.raises(VLLMValidationError, match="allowed 32 or less, as max_model_len is 96"):
        TTPlatform.validate_request({"prompt_token_ids": [1] * 40}, SamplingParams(max_tokens=40))
    said = {"width": 8, "adaptive": True, "max_prompt": 200, "extent": 0}
    assert config.additional_config["_tt_block_output"] == said
    assert config.cache_config.enable_prefix_caching is False


def test_a_test_model_is_refused_without_its_option(bundle, configure, checkpoint, monkeypatch):
    """vLLM itself must know the name by then, or its own error would come first."""
    from tt_platform.vllm import platform
    from tt_platform.vllm.device import DeviceCheck

    bundle({})
    monkeypatch.setenv("TT_RUNTIME", "ttnn")
    monkeypatch.setattr(platform, "check_device", lambda config: DeviceCheck("ttnn"))
    platform.TTPlatform.pre_register_and_update()
    from vllm import ModelRegistry

    assert "TTDummyNoOpModel" in ModelRegistry.get_supported_archs()
    assert served_problem(["TTDummyNoOpModel"]) is not None
    assert "register_test_models" in served_problem(["TTDummyNoOpModel"])


def served_problem(architectures):
    from tt_platform.vllm.models import served_model

    return served_model(architectures, test_models=False).problem


def test_every_adjustment_can_be_carried_over():
    """Fails when a rule changes a fact that the adapter does not know how to set."""
    from tt_platform.config_facts import ConfigFacts
    from tt_platform.options import TTOptions
    from tt_platform.rules import settle
    from tt_platform.vllm.apply import _SETTERS

    everything = ConfigFacts(
        data_parallel_kind="lanes",
        data_parallel_size=2,
        multimodal=True,
        max_logprobs=-1,
        any_whitespace=True,
        block_size=16,
        block_size_chosen=False,
        prefix_caching=True,
        mamba_cache_mode="align",
        chunked_prefill=True,
        long_prefill_token_threshold=5,
        max_num_scheduled_tokens=5,
        async_scheduling=True,
        shutdown_timeout=0,
    )
    chunked = ConfigFacts(
        chunked_prefill=True,
        supports_chunked_prefill=True,
        multimodal=True,
        class_multimodal=True,
        chunked_multimodal=True,
    )
    blocks = ConfigFacts(
        options=TTOptions(sample_on_device_mode="all"), supports_sample_on_device=True, output_tokens_per_step=8
    )
    changed = [settle(facts).changes for facts in (everything, chunked, blocks)]
    assert set().union(*changed) == _SETTERS.keys()


def test_media_for_a_text_only_class_meet_a_limit_of_zero():
    from types import SimpleNamespace

    from vllm.config.multimodal import MultiModalConfig

    from tt_platform.vllm.apply import apply_changes

    multimodal = MultiModalConfig()
    apply_changes(SimpleNamespace(model_config=SimpleNamespace(multimodal_config=multimodal)), {"text_only": True})
    assert multimodal.get_limit_per_prompt("image") == 0


def test_a_malformed_override_is_refused_with_one_line(bundle, configure, monkeypatch):
    bundle({})
    monkeypatch.setenv("TT_MODEL_CLASS_OVERRIDES", "LlamaForCausalLM")
    with refused("TT_MODEL_CLASS_OVERRIDES"):
        configure()


def test_the_v2_model_runner_is_refused(bundle, configure, monkeypatch):
    bundle({})
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with refused("VLLM_USE_V2_MODEL_RUNNER=1 is not supported on Tenstorrent: allowed 0"):
        configure()


def settled(config) -> dict[str, object]:
    return {
        "worker": config.parallel_config.worker_cls,
        "scheduler": config.scheduler_config.scheduler_cls,
        "data_parallel": config.parallel_config.data_parallel_size,
        "executor": config.parallel_config.distributed_executor_backend,
        "seqs": config.scheduler_config.max_num_seqs,
        "budget": config.scheduler_config.max_num_batched_tokens,
        "threshold": config.scheduler_config.long_prefill_token_threshold,
        "chunked": config.scheduler_config.enable_chunked_prefill,
        "async": config.scheduler_config.async_scheduling,
        "prefix": config.cache_config.enable_prefix_caching,
        "block": config.cache_config.block_size,
        "logprobs": config.model_config.max_logprobs,
        "compact": config.structured_outputs_config.disable_any_whitespace,
        "architectures": list(config.model_config.hf_config.architectures),
        "additional": dict(config.additional_config),
    }


# capabilities, bundle's metadata, engine arguments, what comes out
ADJUSTED = {
    "bare model": (
        {},
        {},
        {},
        {"chunked": False, "budget": 4096, "async": False, "prefix": False, "block": 64, "compact": True},
    ),
    "full model": (FULL, {}, {}, {"chunked": True, "async": True, "prefix": True}),
    "classes": (
        FULL,
        {},
        {},
        {"worker": "vllm_tt_plugin.worker.TTWorker", "scheduler": "vllm_tt_plugin.scheduler.TTScheduler"},
    ),
    "own worker and scheduler": (
        FULL,
        {},
        {"worker_cls": "vllm_tt_plugin.worker.Mine", "scheduler_cls": "vllm.v1.core.sched.scheduler.Scheduler"},
        {"worker": "vllm_tt_plugin.worker.Mine", "scheduler": "vllm.v1.core.sched.scheduler.Scheduler"},
    ),
    "logprobs": (FULL, {}, {"max_logprobs": 50}, {"logprobs": 20}),
    "all logprobs": (FULL, {}, {"max_logprobs": -1}, {"logprobs": 20}),
    "few logprobs": (FULL, {}, {"max_logprobs": 5}, {"logprobs": 5}),
    "block size": (FULL, {}, {"block_size": 32}, {"block": 32}),
    "odd block size": (FULL, {}, {"block_size": 16}, {"block": 16}),
    "no chunked prefill": (
        FULL,
        {},
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 8192},
        {"chunked": False, "budget": 8192},
    ),
    "threshold": ({}, {}, {"long_prefill_token_threshold": 512}, {"threshold": 0}),
    "chunk budget": (FULL, {}, {"max_num_batched_tokens": 512}, {"chunked": True, "budget": 512}),
    "prefix caching off": (FULL, {}, {"enable_prefix_caching": False}, {"prefix": False}),
    "sync": (FULL, {}, {"async_scheduling": False}, {"async": False}),
    "lanes": (
        FULL,
        {"data_parallel": "lanes"},
        {"data_parallel_size": 4, "max_num_seqs": 8},
        {
            "data_parallel": 1,
            "seqs": 32,
            "executor": "uni",
            "scheduler": "vllm_tt_plugin.lane_scheduler.TTLaneCoordinator",
            "additional": {"_tt_resolved_lane_count": 4},
        },
    ),
    "prefixed": (FULL, {}, {}, {"architectures": ["TTLlamaForCausalLM"]}),
    "options stay": (
        FULL,
        {},
        {"additional_config": {"tt": {"sample_on_device_mode": "all"}, "other": 1}},
        {"additional": {"tt": {"sample_on_device_mode": "all"}, "other": 1}},
    ),
}


@pytest.mark.parametrize("name", list(ADJUSTED))
def test_a_launch_is_settled_and_settles_again_to_the_same(bundle, configure, name):
    """Fails when a rule is not idempotent: vLLM's processes may run the hook on its own result."""
    from vllm.platforms import current_platform

    capabilities, metadata, arguments, wanted = ADJUSTED[name]
    bundle(capabilities, **metadata)
    config = configure(**arguments)
    first = settled(config)
    ours = first["additional"].pop("_tt_closing_window", None)
    assert {key: first[key] for key in wanted} == wanted
    first["additional"] |= {} if ours is None else {"_tt_closing_window": ours}
    again = copy.deepcopy(config)
    current_platform.check_and_update_config(again)
    assert settled(again) == first
    assert settled(configure(**arguments)) == first


def test_the_engines_arguments_are_not_changed(bundle, checkpoint):
    """Fails when a section of the configuration that belongs to the arguments is changed in place.

    vLLM sends the arguments to its API servers, which check them again and build the configuration once more.
    """
    import pickle

    from vllm.engine.arg_utils import EngineArgs

    bundle({})
    arguments = EngineArgs(model=checkpoint(), skip_tokenizer_init=True, max_num_seqs=8, additional_config={"tt": {}})
    before = pickle.dumps(arguments)
    first = settled(arguments.create_engine_config())
    assert arguments.structured_outputs_config.disable_any_whitespace is False
    assert arguments.additional_config == {"tt": {}}
    assert settled(pickle.loads(before).create_engine_config()) == first
    assert settled(arguments.create_engine_config()) == first


def test_the_v1_contract_is_in_force(bundle, configure):
    bundle(FULL)
    assert configure().use_v2_model_runner is False


def test_lines_that_operators_search_for_are_logged(bundle, configure, caplog):
    bundle(FULL)
    with caplog.at_level(logging.INFO, "vllm.tt"), caplog_on_vllm(caplog):
        configure(max_logprobs=50, additional_config={"tt": {"trace_mod": "all"}})
    text = "\n".join(caplog.messages)
    for line in (
        "Chunked prefill enabled for ",
        "Automatic prefix caching is enabled",
        "max_logprobs=50 exceeds TT device limit of 20, clamping to 20",
        "Unknown TT option additional_config.tt.trace_mod is ignored; did you mean 'trace_mode'?",
    ):
        assert line in text


class caplog_on_vllm:
    """vLLM's logger does not propagate; the handler is put on it directly."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.handler = caplog.handler

    def __enter__(self) -> None:
        logging.getLogger("vllm").addHandler(self.handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("vllm").removeHandler(self.handler)


def test_a_configuration_without_a_model_is_tolerated():
    from vllm.config import VllmConfig

    assert VllmConfig().parallel_config.worker_cls == "vllm_tt_plugin.worker.TTWorker"


def test_the_dotted_form_of_an_option_arrives(checkpoint):
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    given = ["--model", checkpoint(), "--additional-config.tt.trace_mode", "none"]
    given += ["--additional-config.tt.trace_region_size", "5"]
    arguments = parser.parse_args(given)
    assert arguments.additional_config == {"tt": {"trace_mode": "none", "trace_region_size": 5}}


def test_standard_data_parallel_ranks_get_disjoint_groups(bundle, configure, monkeypatch):
    bundle(FULL)
    monkeypatch.setenv("MESH_DEVICE", "T3K")
    config = configure(data_parallel_size=2)
    assert config.parallel_config.distributed_executor_backend == "uni"
    groups = config.additional_config["_tt_standard_dp_visible_groups"]
    assert groups == ["0,1,2,3", "4,5,6,7"]
    assert config.additional_config["_tt_standard_dp_mesh_grids"] == {group: [1, 4] for group in groups}


def test_standard_data_parallel_of_a_mixture_of_experts_is_refused(bundle, configure):
    bundle(FULL, moe=True)
    with refused("--data-parallel-size 2 is not supported"):
        configure(data_parallel_size=2)


def test_a_mesh_that_does_not_split_is_refused_with_one_line(bundle, configure, monkeypatch):
    bundle(FULL)
    monkeypatch.setenv("MESH_DEVICE", "T3K")
    with refused("discovery failed: 8 chips do not divide by 3 ranks"):
        configure(data_parallel_size=3)


def test_device_ids_that_contradict_the_groups_are_refused(bundle, configure, monkeypatch):
    bundle(FULL)
    monkeypatch.setenv("MESH_DEVICE", "T3K")
    with refused("--device-ids 0,1 is not supported on Tenstorrent: allowed 0,1,2,3,4,5,6,7"):
        configure(data_parallel_size=2, device_ids=[0, 1])


def test_a_worker_is_bound_to_its_group(bundle, configure, monkeypatch):
    from tt_platform.vllm.ranks import bind_rank

    bundle(FULL)
    monkeypatch.setenv("MESH_DEVICE", "T3K")
    config = configure(data_parallel_size=2)
    config.parallel_config.data_parallel_rank_local = 1
    environ: dict[str, str] = {}
    assert bind_rank(config, environ) == (1, 4)
    assert environ == {"TT_VISIBLE_DEVICES": "4,5,6,7"}


def test_a_single_engine_is_not_bound(bundle, configure):
    from tt_platform.vllm.ranks import bind_rank

    bundle(FULL)
    environ: dict[str, str] = {}
    assert bind_rank(configure(), environ) is None
    assert environ == {}


def test_sequences_between_two_batch_sizes_of_a_class_are_told_where_they_run(bundle, configure, caplog):
    bundle({}, attributes="tt_supported_decode_batch_sizes = (8, 16)")
    with caplog.at_level(logging.INFO, logger="vllm.tt"):
        config = configure(max_num_seqs=12)
    assert config.scheduler_config.max_num_seqs == 12
    assert any("--max-num-seqs 12 runs in 16 rows" in record.message for record in caplog.records)


def test_the_class_that_a_launcher_registered_is_the_one_whose_capabilities_count(bundle, configure, tmp_path):
    from vllm import ModelRegistry

    """It declares nothing, where the mesh's own class would allow chunked prefill."""
    bundle({}, arch="ZebraForCausalLM")
    module = next((tmp_path / "bundles").glob("*")).name
    sys.path.append(str(tmp_path / "bundles" / module))
    before = dict(ModelRegistry.models)
    ModelRegistry.models.pop("TTLlamaForCausalLM", None)
    try:
        ModelRegistry.register_model("TTLlamaForCausalLM", f"{module}:Model")
        assert not configure(enable_chunked_prefill=True).scheduler_config.enable_chunked_prefill
    finally:
        ModelRegistry.models.clear()
        ModelRegistry.models.update(before)


SIGHT = {
    "architectures": ["TTQwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "text_config": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 160,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
    },
    "vision_config": {"depth": 1, "hidden_size": 32, "num_heads": 2, "patch_size": 4, "out_hidden_size": 64},
    "image_token_id": 150,
    "vision_start_token_id": 152,
}


def test_images_of_a_class_that_takes_them_are_kept_whole_and_wait_for_nobody(configure, checkpoint):
    launch = {"max_num_batched_tokens": 128, "enable_chunked_prefill": True, "long_prefill_token_threshold": 32}
    config = configure(checkpoint(**SIGHT), **launch)
    scheduler = config.scheduler_config
    assert scheduler.long_prefill_token_threshold == 0
    assert scheduler.enable_chunked_prefill
    assert scheduler.disable_chunked_mm_input
    assert scheduler.encoder_cache_size == scheduler.max_num_encoder_input_tokens == 8 * 512
    assert not config.model_config.multimodal_config.language_model_only


def test_a_multimodal_checkpoint_with_a_text_class_takes_text_only(bundle, configure, checkpoint):
    """vLLM's own class says that it is multimodal, and needs no torchvision; the bundle's serves its text."""
    architecture = "Idefics3ForConditionalGeneration"
    bundle(FULL, arch=architecture, multimodal=False)
    text = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}
    config = configure(checkpoint(architectures=[architecture], model_type="idefics3", text_config=text))
    assert config.model_config.multimodal_config.language_model_only
    assert config.model_config.multimodal_config.get_limit_per_prompt("image") == 0
