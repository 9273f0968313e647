"""Rules about parallelism. It lives in the mesh program of the model, not in vLLM."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.data_parallel import fold_lanes
from tt_platform.findings import Finding, adjust, reject, settle_default
from tt_platform.rules.rule import rule

_MESH = "choose the mesh with MESH_DEVICE instead of"


@rule("Tensor parallelism lives in the mesh program.")
def no_tensor_parallel(facts: ConfigFacts) -> Finding | None:
    if facts.tensor_parallel_size <= 1:
        return None
    return reject("--tensor-parallel-size", facts.tensor_parallel_size, allowed="1", do=f"{_MESH} -tp")


@rule("Pipeline parallelism lives in the mesh program.")
def no_pipeline_parallel(facts: ConfigFacts) -> Finding | None:
    if facts.pipeline_parallel_size <= 1:
        return None
    return reject("--pipeline-parallel-size", facts.pipeline_parallel_size, allowed="1", do=f"{_MESH} -pp")


@rule("Context parallelism lives in the mesh program.")
def no_context_parallel(facts: ConfigFacts) -> Finding | None:
    if facts.context_parallel_size <= 1:
        return None
    return reject(
        "--decode-context-parallel-size and --prefill-context-parallel-size",
        facts.context_parallel_size,
        allowed="1",
        do=f"{_MESH} them",
    )


@rule("One host only.")
def one_host(facts: ConfigFacts) -> Finding | None:
    if facts.nnodes <= 1:
        return None
    return reject("--nnodes", facts.nnodes, allowed="1", do="run one server a host behind a load balancer")


@rule("The keys of the multi-host launcher are refused, not ignored: the launch would not be what was asked for.")
def no_multi_host_launcher(facts: ConfigFacts) -> Finding | None:
    keys = facts.options.launcher_keys
    if not keys:
        return None
    return reject(
        f"additional_config.tt.{keys[0]}",
        getattr(facts.options, keys[0]),
        allowed="unset",
        do="multi-host data parallelism is not available in vLLM's launcher; use --data-parallel-size on one host",
    )


@rule("Workers run in the engine's process or as its children; Ray is not used.")
def no_ray(facts: ConfigFacts) -> Finding | None:
    if facts.executor_backend != "ray":
        return None
    return reject("--distributed-executor-backend", "ray", allowed="uni, mp", do="leave it unset")


@rule(
    "For models that run as one program over the whole mesh, `--data-parallel-size N --max-num-seqs M` becomes N lanes "
    "of M sequences in one engine process."
)
def lane_data_parallel(facts: ConfigFacts) -> Finding | None:
    if facts.data_parallel_kind != "lanes" or facts.data_parallel_size <= 1:
        return None
    fold = fold_lanes(facts.data_parallel_size, facts.max_num_seqs)
    return adjust(
        "--data-parallel-size",
        facts.data_parallel_size,
        f"Model requested DP (--data_parallel_size={facts.data_parallel_size}) but runs as a single device execute; "
        f"running single-process TT lane-DP instead: {fold.lanes} lanes of {fold.lane_seqs} sequences, "
        f"max_num_seqs={fold.total_seqs}",
        data_parallel_size=1,
        lanes=fold.lanes,
        max_num_seqs=fold.total_seqs,
        executor_backend="uni",
    )


@rule("Standard data parallelism of mixture-of-experts models is refused: vLLM would couple the ranks.")
def no_moe_standard_data_parallel(facts: ConfigFacts) -> Finding | None:
    if not facts.moe or facts.data_parallel_size <= 1:
        return None
    return reject("--data-parallel-size", facts.data_parallel_size, allowed="1", do="use one engine for MoE models")


@rule("A data-parallel rank is one process: its worker runs in the engine's, which then closes the mesh itself.")
def one_process_a_rank(facts: ConfigFacts) -> Finding | None:
    if facts.data_parallel_size <= 1 or facts.executor_backend != "mp":
        return None
    return settle_default(
        "--distributed-executor-backend",
        "mp",
        "Using --distributed-executor-backend uni: the worker of a data-parallel rank runs in the engine's process",
        executor_backend="uni",
    )


RULES = (
    no_tensor_parallel,
    no_pipeline_parallel,
    no_context_parallel,
    one_host,
    no_multi_host_launcher,
    no_ray,
    lane_data_parallel,
    no_moe_standard_data_parallel,
    one_process_a_rank,
)
